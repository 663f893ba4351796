"""What the records of a decision change, with the value before and after: for the audit log.

Secrets are hidden: of a password only that it was changed, of a user's credential its mechanism and iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.config import definitions
from ottla.config.secret import HIDDEN
from ottla.metadata.image import ConfigResource, ConfigResourceType, MetadataImage
from ottla.protocol.schemas import records
from ottla.security.acls import PatternType, ResourceType, shown
from ottla.security.sasl.scram import BY_NUMBER


class Resource(NamedTuple):
    """What a change is about: TOPIC orders, USER alice."""

    kind: str
    name: str


class Change(NamedTuple):
    """One change; a value that is None was, or is, not there."""

    resource: Resource
    what: str
    before: Any
    after: Any


CLUSTER = Resource("CLUSTER", "kafka-cluster")


def changes_of(decided: Sequence[Any], image: MetadataImage) -> Iterator[Change | None]:
    """The changes that the records make in `image`, in their order; None where others may have their turn. Records by
    which a cluster only goes on, such as elections, give none."""
    found = _Found(image)
    for number, record in enumerate(decided, start=1):
        describe = _KINDS.get(type(record))
        if describe is not None:
            yield from describe(found, record)
        if number % 32 == 0:
            yield None
    for topic_id, count in found.partitions.items():
        name, before = found.topic(topic_id)
        yield Change(Resource("TOPIC", name), "partitions", before or None, before + count)


class _Found:
    """What earlier records of the decision say of later ones."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.created: dict[UUID, str] = {}
        self.partitions: dict[UUID, int] = {}
        """New partitions by topic."""
        self.configs: dict[tuple[int, str, str], str | None] = {}

    def topic(self, topic_id: UUID) -> tuple[str, int]:
        """Name and number of partitions before."""
        known = self.image.topic_by_id(topic_id)
        if known is not None:
            return known.name, len(known.partitions)
        return self.created.get(topic_id, str(topic_id)), 0


def _config(found: _Found, record: records.ConfigRecord) -> Iterator[Change]:
    place = (record.resource_type, record.resource_name, record.name)
    before = found.configs.get(place, found.image.config(record.resource_type, record.resource_name).get(record.name))
    found.configs[place] = record.value
    hidden = definitions.may_be_secret(record.resource_type, record.name)
    values = [None if each is None else HIDDEN if hidden else each for each in (before, record.value)]
    yield Change(config_resource(record.resource_type, record.resource_name), record.name, *values)


def config_resource(kind: int, name: str) -> Resource:
    """The resource of settings."""
    known = {each.value: each.name for each in ConfigResourceType}
    return Resource(known.get(kind, str(kind)), name)


def _acl_added(found: _Found, record: records.AccessControlEntryRecord) -> Iterator[Change]:
    yield Change(_covered(record), "acl", None, shown(record))


def _acl_removed(found: _Found, record: records.RemoveAccessControlEntryRecord) -> Iterator[Change]:
    acl = found.image.acls.get(record.id)
    if acl is not None:
        yield Change(_covered(acl), "acl", shown(acl), None)


def acl_resource(kind: int, name: str, pattern_type: int) -> Resource:
    """The resource of an ACL; a prefix ends with an asterisk."""
    known = {each.value: each.name for each in ResourceType}
    return Resource(known.get(kind, str(kind)), f"{name}*" if pattern_type == PatternType.PREFIXED else name)


def _covered(acl: Any) -> Resource:
    return acl_resource(acl.resource_type, acl.resource_name, acl.pattern_type)


def _credential(found: _Found, record: records.UserScramCredentialRecord) -> Iterator[Change]:
    before = found.image.scram_credentials.get((record.name, record.mechanism))
    yield Change(
        Resource("USER", record.name),
        _mechanism(record.mechanism),
        None if before is None else _secret(before),
        _secret(record),
    )


def _credential_removed(found: _Found, record: records.RemoveUserScramCredentialRecord) -> Iterator[Change]:
    before = found.image.scram_credentials.get((record.name, record.mechanism))
    yield Change(
        Resource("USER", record.name), _mechanism(record.mechanism), None if before is None else _secret(before), None
    )


def _mechanism(number: int) -> str:
    known = BY_NUMBER.get(number)
    return f"mechanism {number}" if known is None else known.name


def _secret(credential: Any) -> str:
    return f"{HIDDEN} ({credential.iterations} iterations)"


def _topic(found: _Found, record: records.TopicRecord) -> Iterator[Change]:
    found.created[record.topic_id] = record.name
    yield Change(Resource("TOPIC", record.name), "topic", None, str(record.topic_id))


def _topic_removed(found: _Found, record: records.RemoveTopicRecord) -> Iterator[Change]:
    name, count = found.topic(record.topic_id)
    yield Change(Resource("TOPIC", name), "topic", str(record.topic_id), None)
    settings = found.image.configs.get(ConfigResource(ConfigResourceType.TOPIC, name))
    yield Change(Resource("TOPIC", name), "partitions", count, None)
    for setting, value in (settings or {}).items():
        yield Change(Resource("TOPIC", name), setting, value, None)


def _partition(found: _Found, record: records.PartitionRecord) -> Iterator[Change]:
    if record.topic_id in found.created and record.topic_id not in found.partitions:
        name = found.created[record.topic_id]
        yield Change(Resource("TOPIC", name), "replication factor", None, len(record.replicas))
    found.partitions[record.topic_id] = found.partitions.get(record.topic_id, 0) + 1


def _partition_changed(found: _Found, record: records.PartitionChangeRecord) -> Iterator[Change]:
    topic = found.image.topic_by_id(record.topic_id)
    if record.replicas is None and record.adding_replicas is None and record.removing_replicas is None:
        return
    if topic is None or record.partition_id not in topic.partitions:
        return
    before = topic.partitions[record.partition_id]
    resource = Resource("TOPIC", topic.name)
    for what, was, now in (
        ("replicas", before.replicas, record.replicas),
        ("adding replicas", before.adding, record.adding_replicas),
        ("removing replicas", before.removing, record.removing_replicas),
    ):
        if now is not None:
            yield Change(resource, f"{what} of partition {record.partition_id}", list(was), list(now))


def _quota(found: _Found, record: records.ClientQuotaRecord) -> Iterator[Change]:
    entity = tuple(sorted((each.entity_type, each.entity_name) for each in record.entity))
    known = found.image.client_quotas.get(entity, {})
    after = None if record.remove else record.value
    yield Change(Resource("QUOTA", quota_name(entity)), record.key, known.get(record.key), after)


def quota_name(entity: Sequence[tuple[str, str | None]]) -> str:
    """The entity of a quota: client-id=a,user=<default>."""
    return ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in sorted(entity))


def _feature(found: _Found, record: records.FeatureLevelRecord) -> Iterator[Change]:
    yield Change(CLUSTER, f"feature {record.name}", found.image.features.get(record.name), record.feature_level)


def _unregistered(found: _Found, record: records.UnregisterBrokerRecord) -> Iterator[Change]:
    yield Change(Resource("BROKER", str(record.broker_id)), "registration", "registered", None)


def _controller_unregistered(found: _Found, record: records.UnregisterControllerRecord) -> Iterator[Change]:
    yield Change(Resource("CONTROLLER", str(record.controller_id)), "registration", "registered", None)


def _token(found: _Found, record: records.DelegationTokenRecord) -> Iterator[Change]:
    yield Change(Resource("DELEGATION_TOKEN", record.token_id), "expires at", None, record.expiration_timestamp)


def _token_removed(found: _Found, record: records.RemoveDelegationTokenRecord) -> Iterator[Change]:
    yield Change(Resource("DELEGATION_TOKEN", record.token_id), "token", "valid", None)


_KINDS: Mapping[type, Callable[[_Found, Any], Iterator[Change]]] = {
    records.ConfigRecord: _config,
    records.AccessControlEntryRecord: _acl_added,
    records.RemoveAccessControlEntryRecord: _acl_removed,
    records.UserScramCredentialRecord: _credential,
    records.RemoveUserScramCredentialRecord: _credential_removed,
    records.TopicRecord: _topic,
    records.RemoveTopicRecord: _topic_removed,
    records.PartitionRecord: _partition,
    records.PartitionChangeRecord: _partition_changed,
    records.ClientQuotaRecord: _quota,
    records.FeatureLevelRecord: _feature,
    records.UnregisterBrokerRecord: _unregistered,
    records.UnregisterControllerRecord: _controller_unregistered,
    records.DelegationTokenRecord: _token,
    records.RemoveDelegationTokenRecord: _token_removed,
}
