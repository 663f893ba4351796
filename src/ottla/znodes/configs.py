"""`/config`: settings of topics and brokers, quotas and SCRAM credentials (`ConfigEntityZNode`)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.config.secret import revealed
from ottla.protocol.schemas import records as r
from ottla.security.sasl.scram import BY_NAME, BY_NUMBER
from ottla.znodes.tree import DEFAULT_NAME, BadZnode, desanitized, fields_of, sanitized, to_json

CONFIG: Final = "/config"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CLIENTS: Final = "/config/clients"
USERS: Final = "/config/users"
IPS: Final = "/config/ips"

QUOTA_KINDS: Final[Mapping[str, str]] = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
"""Path of the entities of a kind, and the kind's name in records."""

QUOTA_KEYS: Final = frozenset({
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
})  # fmt: skip

_DOUBLES: Final = frozenset({"request_percentage", "controller_mutation_rate"})
"""Quotas that may have a fraction; brokers with ZooKeeper parse the others as whole numbers."""

Entity = tuple[tuple[str, "str | None"], ...]


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """The settings in a znode; an empty one has none (`ConfigEntityZNode.decode`). Raises BadZnode."""
    if not data:
        return {}
    fields = fields_of(path, data)
    fields.version(1)
    found = {}
    for name, value in fields.object("config", optional=True).items():
        if not isinstance(value, str):
            raise BadZnode(path, f"is damaged: the value of {name} is no text")
        found[name] = value
    return found


def encode_config(configs: Mapping[str, str]) -> bytes:
    return to_json({"version": 1, "config": {name: revealed(value) for name, value in sorted(configs.items())}})


def entity_path(entity: Entity) -> str:
    """Where the quotas of an entity are: `/config/users/U/clients/C` of one of both kinds."""
    parts = dict(entity)
    names = {kind: DEFAULT_NAME if name is None else sanitized(name) for kind, name in parts.items()}
    if "user" in names:
        own = f"{USERS}/{names['user']}"
        return f"{own}/clients/{names['client-id']}" if "client-id" in names else own
    if "client-id" in names:
        return f"{CLIENTS}/{names['client-id']}"
    return f"{IPS}/{names['ip']}"


def entity_name(path: str, name: str) -> str | None:
    """The name behind the last part of a path, None for the default. Raises BadZnode."""
    return None if name == DEFAULT_NAME else desanitized(path, name)


class EntityConfigs(NamedTuple):
    """What the znode of a user, a client or an address holds."""

    quotas: dict[str, float]
    credentials: list[r.UserScramCredentialRecord]
    unknown: list[str]


def decode_entity(path: str, data: bytes, user: str | None) -> EntityConfigs:
    """`user` is whose credentials they are. Raises BadZnode."""
    found = EntityConfigs({}, [], [])
    for name, value in sorted(decode_config(path, data).items()):
        if name in BY_NAME:
            found.credentials.append(_credential(path, user or "", name, value))
        elif name in QUOTA_KEYS:
            try:
                found.quotas[name] = float(value)
            except ValueError:
                raise BadZnode(path, f"is damaged: {name} is no number") from None
        else:
            found.unknown.append(name)
    return found


def _credential(path: str, user: str, mechanism: str, text: str) -> r.UserScramCredentialRecord:
    """`ScramCredentialUtils.credentialFromString`."""
    try:
        fields = dict(part.split("=", 1) for part in text.split(","))
        salt, stored, server = (
            base64.b64decode(fields.pop(name), validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields.pop("iterations"))
    except (ValueError, KeyError, binascii.Error):
        raise BadZnode(path, f"is damaged: {mechanism} is no credential") from None
    return r.UserScramCredentialRecord(user, BY_NAME[mechanism].number, salt, stored, server, iterations)


def encode_entity(quotas: Mapping[str, float], credentials: list[r.UserScramCredentialRecord]) -> bytes:
    texts = {name: _quota_text(name, value) for name, value in quotas.items()}
    for each in credentials:
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (each.salt, each.stored_key, each.server_key)
        )
        text = f"salt={salt},stored_key={stored},server_key={server},iterations={each.iterations}"
        texts[BY_NUMBER[each.mechanism].name] = text
    return encode_config(texts)


def _quota_text(name: str, value: float) -> str:
    return repr(value) if name in _DOUBLES or value != int(value) else str(int(value))
