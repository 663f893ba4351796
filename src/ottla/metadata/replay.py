"""How each record of the metadata log changes a delta: the only way that metadata ever changes, live and at start.

A record that contradicts the image (a partition of an unknown topic, say) means a corrupt log or a bug: ReplayError.
"""

from __future__ import annotations

from functools import singledispatch
from sys import intern
from typing import Any

from ottla.config.definitions import may_be_secret
from ottla.errors import OttlaError
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import (
    DIRECTORY_MIGRATING,
    NO_LEADER_CHANGE,
    BrokerRegistration,
    ConfigResource,
    ControllerRegistration,
    Endpoint,
    PartitionRegistration,
    shared,
)
from ottla.protocol.schemas import records as r


class ReplayError(Exception):
    """A record of the metadata log that cannot follow what came before it."""


class UnsupportedLevel(OttlaError):
    """A feature level that a newer software has finalized: what the records behind it mean is not known here."""


@singledispatch
def replay(record: Any, delta: MetadataDelta) -> None:
    """Apply one record to `delta`. Raises ReplayError, UnsupportedLevel."""
    raise ReplayError(f"no way to replay a {type(record).__name__}")


@replay.register(r.NoOpRecord)
@replay.register(r.ZkMigrationStateRecord)
def _nothing(record: Any, delta: MetadataDelta) -> None:
    """Records that say nothing about the image."""


@replay.register
def _topic(record: r.TopicRecord, delta: MetadataDelta) -> None:
    delta.create_topic(record.name, record.topic_id)


@replay.register
def _remove_topic(record: r.RemoveTopicRecord, delta: MetadataDelta) -> None:
    """The settings go with the topic, as in Kafka's ConfigurationsDelta."""
    name = delta.delete_topic(record.topic_id)
    if name is None:
        raise ReplayError(f"RemoveTopicRecord for unknown topic id {record.topic_id}")
    resource = ConfigResource(2, name)
    existing = delta.base.configs.get(resource, {})
    if existing:
        delta.configs[resource] = dict.fromkeys(existing)
    else:
        delta.configs.pop(resource, None)


@replay.register
def _partition(record: r.PartitionRecord, delta: MetadataDelta) -> None:
    topic = delta.topic_delta(record.topic_id)
    if topic is None:
        raise ReplayError(f"PartitionRecord for unknown topic id {record.topic_id}")
    topic.changes[record.partition_id] = PartitionRegistration(
        shared(tuple(record.replicas)),
        shared(tuple(record.isr)),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        shared(tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(record.replicas)),
        record.removing_replicas,
        record.adding_replicas,
        record.eligible_leader_replicas or (),
        record.last_known_elr or (),
        record.leader_recovery_state,
    )


@replay.register
def _partition_change(record: r.PartitionChangeRecord, delta: MetadataDelta) -> None:
    topic = delta.topic_delta(record.topic_id)
    old = None if topic is None else topic.partition(record.partition_id)
    if topic is None or old is None:
        raise ReplayError(f"PartitionChangeRecord for unknown partition {record.topic_id}:{record.partition_id}")
    topic.changes[record.partition_id] = changed_partition(old, record)


def changed_partition(old: PartitionRegistration, record: r.PartitionChangeRecord) -> PartitionRegistration:
    """`old` after a change: the partition epoch always grows, the leader epoch if a leader is named, even the same."""
    replicas = old.replicas if record.replicas is None else record.replicas
    if record.directories is not None:
        directories = record.directories
    elif record.replicas is None:
        directories = old.directories
    else:
        directories = tuple(old.directory(replica) for replica in replicas)
    new_leader = record.leader != NO_LEADER_CHANGE
    return PartitionRegistration(
        replicas,
        old.isr if record.isr is None else shared(tuple(record.isr)),
        record.leader if new_leader else old.leader,
        old.leader_epoch + 1 if new_leader else old.leader_epoch,
        old.partition_epoch + 1,
        directories,
        old.removing if record.removing_replicas is None else record.removing_replicas,
        old.adding if record.adding_replicas is None else record.adding_replicas,
        old.elr if record.eligible_leader_replicas is None else shared(tuple(record.eligible_leader_replicas)),
        old.last_known_elr if record.last_known_elr is None else shared(tuple(record.last_known_elr)),
        old.recovery_state if record.leader_recovery_state == -1 else record.leader_recovery_state,
    )


@replay.register
def _clear_elr(record: r.ClearElrRecord, delta: MetadataDelta) -> None:
    """Clear the ELR of one topic, or of all if the record names none. Kafka's TopicDelta leaves the partition epoch
    alone."""
    names = [record.topic_name] if record.topic_name else [topic.name for topic in delta.base.topics]
    created = {topic.name: topic.id for topic in delta.created_topics()}
    if not record.topic_name:
        names += created
    for name in names:
        base = delta.base.topics_by_name.get(name)
        topic_id = created.get(name) or (None if base is None else base.id)
        topic = None if topic_id is None else delta.topic_delta(topic_id)
        if topic is None:
            raise ReplayError(f"ClearElrRecord for unknown topic {name}")
        partitions = {**(topic.base.partitions if topic.base else {}), **topic.changes}
        for number, partition in partitions.items():
            if partition.elr or partition.last_known_elr:
                topic.changes[number] = partition._replace(elr=(), last_known_elr=())


@replay.register
def _config(record: r.ConfigRecord, delta: MetadataDelta) -> None:
    resource = ConfigResource(record.resource_type, record.resource_name)
    value = record.value
    if value is not None and may_be_secret(record.resource_type, record.name):
        from ottla.config.secret import Secret  # few clusters have one

        value = Secret(value)
    delta.configs.setdefault(resource, {})[record.name] = value


@replay.register
def _register_broker(record: r.RegisterBrokerRecord, delta: MetadataDelta) -> None:
    delta.brokers[record.broker_id] = BrokerRegistration(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        {end.name: Endpoint(end.host, end.port, end.security_protocol) for end in record.end_points},
        {item.name: (item.min_supported_version, item.max_supported_version) for item in record.features},
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(sorted(record.log_dirs)),
        tuple(record.cordoned_log_dirs or ()),
    )


@replay.register
def _unregister_broker(record: r.UnregisterBrokerRecord, delta: MetadataDelta) -> None:
    _known_broker(record.broker_id, record.broker_epoch, delta)
    delta.brokers[record.broker_id] = None


@replay.register
def _broker_change(record: r.BrokerRegistrationChangeRecord, delta: MetadataDelta) -> None:
    broker = _known_broker(record.broker_id, record.broker_epoch, delta)
    cordoned = record.cordoned_log_dirs
    delta.brokers[record.broker_id] = BrokerRegistration(
        broker.id,
        broker.epoch,
        broker.incarnation_id,
        broker.endpoints,
        broker.features,
        broker.rack,
        broker.fenced if record.fenced == 0 else record.fenced > 0,
        broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        tuple(sorted(record.log_dirs)) or broker.log_dirs,
        broker.cordoned_log_dirs if cordoned is None else tuple(cordoned),
    )


@replay.register
def _fence(record: r.FenceBrokerRecord, delta: MetadataDelta) -> None:
    _broker_change(r.BrokerRegistrationChangeRecord(record.id, record.epoch, fenced=1), delta)


@replay.register
def _unfence(record: r.UnfenceBrokerRecord, delta: MetadataDelta) -> None:
    _broker_change(r.BrokerRegistrationChangeRecord(record.id, record.epoch, fenced=-1), delta)


def _known_broker(node_id: int, epoch: int, delta: MetadataDelta) -> BrokerRegistration:
    broker = delta.broker(node_id)
    if broker is None:
        raise ReplayError(f"a change of broker {node_id}, which is not registered")
    if broker.epoch != epoch:
        raise ReplayError(f"a change of broker {node_id} in epoch {epoch}; it is in epoch {broker.epoch}")
    return broker


@replay.register
def _register_controller(record: r.RegisterControllerRecord, delta: MetadataDelta) -> None:
    delta.controllers[record.controller_id] = ControllerRegistration(
        record.controller_id,
        record.incarnation_id,
        {end.name: Endpoint(end.host, end.port, end.security_protocol) for end in record.end_points},
        {item.name: (item.min_supported_version, item.max_supported_version) for item in record.features},
    )


@replay.register
def _unregister_controller(record: r.UnregisterControllerRecord, delta: MetadataDelta) -> None:
    known = delta.controllers.get(record.controller_id, delta.base.controllers.get(record.controller_id))
    if known is None:
        raise ReplayError(f"UnregisterControllerRecord for controller {record.controller_id}, which is not registered")
    delta.controllers[record.controller_id] = None


@replay.register
def _feature_level(record: r.FeatureLevelRecord, delta: MetadataDelta) -> None:
    """As Kafka's `FeatureControlManager`, which does not replay a level that it does not support."""
    why = features.why_unsupported({record.name: record.feature_level})
    if why is not None:
        raise UnsupportedLevel(f"{why}: start a release that supports this level")
    delta.features[record.name] = record.feature_level


@replay.register
def _producer_ids(record: r.ProducerIdsRecord, delta: MetadataDelta) -> None:
    delta.next_producer_id = record.next_producer_id


@replay.register
def _client_quota(record: r.ClientQuotaRecord, delta: MetadataDelta) -> None:
    entity = tuple(sorted((item.entity_type, item.entity_name) for item in record.entity))
    delta.set_client_quota(entity, record.key, None if record.remove else record.value)


@replay.register
def _scram(record: r.UserScramCredentialRecord, delta: MetadataDelta) -> None:
    delta.scram_credentials[record.name, record.mechanism] = record


@replay.register
def _remove_scram(record: r.RemoveUserScramCredentialRecord, delta: MetadataDelta) -> None:
    delta.scram_credentials[record.name, record.mechanism] = None


@replay.register
def _acl(record: r.AccessControlEntryRecord, delta: MetadataDelta) -> None:
    """Many ACLs have the same few principals, hosts and names."""
    record.principal, record.host = intern(record.principal), intern(record.host)
    record.resource_name = intern(record.resource_name)
    delta.acls[record.id] = record


@replay.register
def _remove_acl(record: r.RemoveAccessControlEntryRecord, delta: MetadataDelta) -> None:
    delta.acls[record.id] = None


@replay.register
def _token(record: r.DelegationTokenRecord, delta: MetadataDelta) -> None:
    delta.delegation_tokens[record.token_id] = record


@replay.register
def _remove_token(record: r.RemoveDelegationTokenRecord, delta: MetadataDelta) -> None:
    delta.delegation_tokens[record.token_id] = None
