"""What a tool has written into a znode by hand, as the records that make the metadata say the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.protocol.schemas import records as r
from ottla.security.acls import Binding, PatternType, binding
from ottla.znodes import acls, configs
from ottla.znodes.passwords import WrongSecret, decrypted, is_encrypted
from ottla.znodes.reading import made_up_id
from ottla.znodes.tree import DEFAULT_NAME, BadZnode, desanitized, fields_of

CHANGE_VERSIONS = (1, 2)


def changed_entity(path: str, data: bytes) -> str:
    """The znode that a notification below `/config/changes` tells of (`ConfigEntityChangeNotificationZNode`). Raises
    BadZnode."""
    fields = fields_of(path, data)
    if fields.version(*CHANGE_VERSIONS) == 1:
        found = f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    else:
        found = fields.text("entity_path")
    parts = found.split("/")
    if len(parts) not in (2, 4) or "" in parts or parts[0] not in ("topics", "brokers", "users", "clients", "ips"):
        raise BadZnode(path, f"tells of {found!r}, which is no entity")
    return f"{configs.CONFIG}/{found}"


def changed_acls(path: str, data: bytes, *, extended: bool) -> str:
    """The znode that a notification below `/kafka-acl-changes` or `/kafka-acl-extended-changes` tells of
    (`ZkAclChangeStore`). Raises BadZnode."""
    if not extended:
        kind, colon, name = data.decode("utf-8", "replace").partition(":")
        pattern = int(PatternType.LITERAL)
    else:
        fields = fields_of(path, data)
        fields.version(1)
        kind, colon, name = fields.text("resourceType"), ":", fields.text("name")
        pattern = {"LITERAL": 3, "PREFIXED": 4}.get(fields.text("patternType").upper(), 0)
    kinds = {each.upper(): number for each, number in acls.RESOURCES.items()}
    number = kinds.get(kind.upper().replace("_", ""))
    if not colon or not name or number is None or pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise BadZnode(path, "tells of no resource that this software knows")
    return acls.acl_path(number, pattern, name)


def records_for(image: MetadataImage, path: str, data: bytes, secrets: Sequence[str], seed: bytes) -> list[Any]:
    """The records that make `image` say what stands in the znode at `path`; `data` is empty where it is not there.
    Raises BadZnode."""
    if path.startswith((f"{acls.LITERAL_ACLS}/", f"{acls.PREFIXED_ACLS}/")):
        return list(_acls(image, path, data, seed))
    for root, kind in (
        (configs.TOPIC_CONFIGS, ConfigResourceType.TOPIC),
        (configs.BROKER_CONFIGS, ConfigResourceType.BROKER),
    ):
        if path.startswith(f"{root}/"):
            return list(_settings(image, path, kind, path[len(root) + 1 :], data, secrets))
    return list(_entity(image, path, data))


def _settings(
    image: MetadataImage, path: str, kind: ConfigResourceType, text: str, data: bytes, secrets: Sequence[str]
) -> Iterator[Any]:
    name = "" if kind == ConfigResourceType.BROKER and text == DEFAULT_NAME else desanitized(path, text)
    if kind == ConfigResourceType.TOPIC and name not in image.topics_by_name:
        return
    wanted = configs.decode_config(path, data)
    for key, value in wanted.items():
        if is_encrypted(value):
            try:
                wanted[key] = decrypted(value, secrets)
            except WrongSecret:
                raise BadZnode(path, f"{key} is encrypted, and password.encoder.secret does not open it") from None
    known = image.config(kind, name)
    for key in sorted({*wanted, *known}):
        if wanted.get(key) != known.get(key):
            yield r.ConfigRecord(kind, name, key, wanted.get(key))


def _entity(image: MetadataImage, path: str, data: bytes) -> Iterator[Any]:
    parts = path.split("/")[2:]
    kinds = {"users": "user", "clients": "client-id", "ips": "ip"}
    names = [(kinds[kind], name) for kind, name in zip(parts[::2], parts[1::2], strict=True)]
    entity: configs.Entity = tuple(sorted((kind, configs.entity_name(path, name)) for kind, name in names))
    user = dict(entity).get("user") if len(entity) == 1 else None
    wanted = configs.decode_entity(path, data, user)
    known: Mapping[str, float] = image.client_quotas.get(entity, {})
    rows = tuple(r.QuotaEntityData(kind, name) for kind, name in entity)
    for key in sorted({*wanted.quotas, *known}):
        value = wanted.quotas.get(key)
        if value is None:
            yield r.ClientQuotaRecord(rows, key, 0.0, remove=True)
        elif value != known.get(key):
            yield r.ClientQuotaRecord(rows, key, value)
    if user is None:
        return
    credentials = {each.mechanism: each for each in wanted.credentials}
    for (name, mechanism), _ in sorted(image.scram_credentials.items()):
        if name == user and mechanism not in credentials:
            yield r.RemoveUserScramCredentialRecord(user, mechanism)
    for mechanism, credential in sorted(credentials.items()):
        if image.scram_credentials.get((user, mechanism)) != credential:
            yield credential


def _acls(image: MetadataImage, path: str, data: bytes, seed: bytes) -> Iterator[Any]:
    pattern = PatternType.LITERAL if path.startswith(f"{acls.LITERAL_ACLS}/") else PatternType.PREFIXED
    root = acls.LITERAL_ACLS if pattern == PatternType.LITERAL else acls.PREFIXED_ACLS
    kind, _, name = path[len(root) + 1 :].partition("/")
    wanted = set(acls.decode_acls(path, data, acls.RESOURCES[kind], pattern, name)) if data else set()
    known: dict[Binding, UUID] = {}
    for acl_id, record in image.acls.items():
        if acls.acl_path(record.resource_type, record.pattern_type, record.resource_name) == path:
            known[binding(record)] = acl_id
    for acl in sorted(wanted - known.keys()):
        yield r.AccessControlEntryRecord(made_up_id(seed, "acl", *acl), *acl)
    for acl in sorted(known.keys() - wanted):
        yield r.RemoveAccessControlEntryRecord(known[acl])
