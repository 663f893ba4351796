"""The records of the metadata log, as Kafka 4.4 declares them, and the frame around each of them.

Every record of the log is a frame: frame version (uvarint, 1), API key (uvarint), version (uvarint), then the message
(Kafka's `AbstractApiMessageSerde`). Which version to write depends on the finalized `metadata.version`; see
`ottla.metadata.features`. Field names and order are those of Kafka's schemas.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ottla.model import Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, encode_into, spec
from ottla.protocol.varint import read_uvarint

FRAME_VERSION: Final = 1


@dataclass(slots=True)
class EndpointData:
    """One listener of a broker or a controller."""

    name: str = spec("string")
    host: str = spec("string")
    port: int = spec("uint16")
    security_protocol: int = spec("int16")


@dataclass(slots=True)
class FeatureRange:
    """The levels of a feature that a node supports."""

    name: str = spec("string")
    min_supported_version: int = spec("int16")
    max_supported_version: int = spec("int16")


@dataclass(slots=True)
class RegisterBrokerRecord:
    """A broker registered; its epoch is the offset of this record."""

    broker_id: int = spec("int32")
    is_migrating_zk_broker: bool = spec("bool", versions="2+")
    incarnation_id: UUID = spec("uuid")
    broker_epoch: int = spec("int64")
    end_points: tuple[EndpointData, ...] = spec([EndpointData])
    features: tuple[FeatureRange, ...] = spec([FeatureRange])
    rack: str | None = spec("string", nullable="0+", default=None)
    fenced: bool = spec("bool", default=True)
    in_controlled_shutdown: bool = spec("bool", versions="1+")
    log_dirs: tuple[UUID, ...] = spec("[]uuid", versions="3+", tag=0, ignorable=True)
    cordoned_log_dirs: tuple[UUID, ...] | None = spec(
        "[]uuid", versions="4+", nullable="4+", tag=1, default=None, ignorable=True
    )


@dataclass(slots=True)
class UnregisterBrokerRecord:
    """A broker was removed from the cluster for good."""

    broker_id: int = spec("int32")
    broker_epoch: int = spec("int64")


@dataclass(slots=True)
class TopicRecord:
    """A topic was created; its partitions follow."""

    name: str = spec("string")
    topic_id: UUID = spec("uuid")


@dataclass(slots=True)
class PartitionRecord:
    """A partition as it is, whole: when it is created, and in snapshots."""

    partition_id: int = spec("int32", default=-1)
    topic_id: UUID = spec("uuid")
    replicas: tuple[int, ...] = spec("[]int32")
    isr: tuple[int, ...] = spec("[]int32")
    removing_replicas: tuple[int, ...] = spec("[]int32")
    adding_replicas: tuple[int, ...] = spec("[]int32")
    leader: int = spec("int32", default=-1)
    leader_recovery_state: int = spec("int8", tag=0)
    leader_epoch: int = spec("int32", default=-1)
    partition_epoch: int = spec("int32", default=-1)
    directories: tuple[UUID, ...] = spec("[]uuid", versions="1+", ignorable=True)
    eligible_leader_replicas: tuple[int, ...] | None = spec(
        "[]int32", versions="2+", nullable="2+", tag=1, default=None, ignorable=True
    )
    last_known_elr: tuple[int, ...] | None = spec(
        "[]int32", versions="2+", nullable="2+", tag=2, default=None, ignorable=True
    )


@dataclass(slots=True)
class ConfigRecord:
    """A dynamic setting of a resource has a new value; null removes it."""

    resource_type: int = spec("int8")
    resource_name: str = spec("string")
    name: str = spec("string")
    value: str | None = spec("string", nullable="0+")

    def __repr__(self) -> str:
        from ottla.config.definitions import may_be_secret

        value = self.value
        if value is not None and may_be_secret(self.resource_type, self.name):
            value = "[hidden]"
        return (
            f"ConfigRecord(resource_type={self.resource_type!r}, resource_name={self.resource_name!r}, "
            f"name={self.name!r}, value={value!r})"
        )


@dataclass(slots=True)
class PartitionChangeRecord:
    """What changed of a partition; fields at their default did not. A leader named, even the same, is a new epoch."""

    partition_id: int = spec("int32", default=-1)
    topic_id: UUID = spec("uuid")
    isr: tuple[int, ...] | None = spec("[]int32", nullable="0+", tag=0, default=None)
    leader: int = spec("int32", tag=1, default=-2)
    replicas: tuple[int, ...] | None = spec("[]int32", nullable="0+", tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = spec("[]int32", nullable="0+", tag=3, default=None)
    adding_replicas: tuple[int, ...] | None = spec("[]int32", nullable="0+", tag=4, default=None)
    leader_recovery_state: int = spec("int8", tag=5, default=-1)
    directories: tuple[UUID, ...] | None = spec(
        "[]uuid", versions="1+", nullable="1+", tag=8, default=None, ignorable=True
    )
    eligible_leader_replicas: tuple[int, ...] | None = spec(
        "[]int32", versions="2+", nullable="2+", tag=6, default=None, ignorable=True
    )
    last_known_elr: tuple[int, ...] | None = spec(
        "[]int32", versions="2+", nullable="2+", tag=7, default=None, ignorable=True
    )


@dataclass(slots=True)
class AccessControlEntryRecord:
    """An access control entry was added."""

    id: UUID = spec("uuid")
    resource_type: int = spec("int8")
    resource_name: str = spec("string")
    pattern_type: int = spec("int8")
    principal: str = spec("string")
    host: str = spec("string")
    operation: int = spec("int8")
    permission_type: int = spec("int8")


@dataclass(slots=True)
class FenceBrokerRecord:
    """A broker was fenced (before metadata.version 3.3-IV2)."""

    id: int = spec("int32")
    epoch: int = spec("int64")


@dataclass(slots=True)
class UnfenceBrokerRecord:
    """A broker was unfenced (before metadata.version 3.3-IV2)."""

    id: int = spec("int32")
    epoch: int = spec("int64")


@dataclass(slots=True)
class RemoveTopicRecord:
    """A topic was deleted, with its partitions and settings."""

    topic_id: UUID = spec("uuid")


@dataclass(slots=True)
class DelegationTokenRecord:
    """A delegation token was created or renewed."""

    owner: str = spec("string")
    requester: str = spec("string")
    renewers: tuple[str, ...] = spec("[]string")
    issue_timestamp: int = spec("int64")
    max_timestamp: int = spec("int64")
    expiration_timestamp: int = spec("int64")
    token_id: str = spec("string")


@dataclass(slots=True)
class UserScramCredentialRecord:
    """A user's SCRAM credential was set."""

    name: str = spec("string")
    mechanism: int = spec("int8")
    salt: bytes = spec("bytes", secret=True)
    stored_key: bytes = spec("bytes", secret=True)
    server_key: bytes = spec("bytes", secret=True)
    iterations: int = spec("int32")


@dataclass(slots=True)
class FeatureLevelRecord:
    """A feature was finalized at a level; 0 switches it off."""

    name: str = spec("string")
    feature_level: int = spec("int16")


@dataclass(slots=True)
class QuotaEntityData:
    """One part of whom a quota is for; no name stands for the default."""

    entity_type: str = spec("string")
    entity_name: str | None = spec("string", nullable="0+")


@dataclass(slots=True)
class ClientQuotaRecord:
    """A quota was set or removed."""

    entity: tuple[QuotaEntityData, ...] = spec([QuotaEntityData])
    key: str = spec("string")
    value: float = spec("float64")
    remove: bool = spec("bool")


@dataclass(slots=True)
class ProducerIdsRecord:
    """A block of producer ids was handed out; `next_producer_id` is the first that was not."""

    broker_id: int = spec("int32")
    broker_epoch: int = spec("int64", default=-1)
    next_producer_id: int = spec("int64")


@dataclass(slots=True)
class BrokerRegistrationChangeRecord:
    """`fenced`: -1 unfences, 1 fences, 0 leaves; `in_controlled_shutdown`: 1 begins, 0 leaves."""

    broker_id: int = spec("int32")
    broker_epoch: int = spec("int64")
    fenced: int = spec("int8", tag=0)
    in_controlled_shutdown: int = spec("int8", versions="1+", tag=1)
    log_dirs: tuple[UUID, ...] = spec("[]uuid", versions="2+", tag=2, ignorable=True)
    cordoned_log_dirs: tuple[UUID, ...] | None = spec(
        "[]uuid", versions="3+", nullable="3+", tag=3, default=None, ignorable=True
    )


@dataclass(slots=True)
class RemoveAccessControlEntryRecord:
    """An access control entry was removed."""

    id: UUID = spec("uuid")


@dataclass(slots=True)
class NoOpRecord:
    """Changes nothing; lets followers measure how far behind they are."""


@dataclass(slots=True)
class ZkMigrationStateRecord:
    """How far a migration from ZooKeeper has come."""

    zk_migration_state: int = spec("int8")


@dataclass(slots=True)
class RemoveUserScramCredentialRecord:
    """A user's SCRAM credential was removed."""

    name: str = spec("string")
    mechanism: int = spec("int8")


@dataclass(slots=True)
class BeginTransactionRecord:
    """The records up to EndTransactionRecord count together or not at all (KIP-868)."""

    name: str | None = spec("string", nullable="0+", tag=0, default=None)


@dataclass(slots=True)
class EndTransactionRecord:
    """The transaction that was begun counts."""


@dataclass(slots=True)
class AbortTransactionRecord:
    """The transaction that was begun does not count."""

    reason: str | None = spec("string", nullable="0+", tag=0, default=None)


@dataclass(slots=True)
class RemoveDelegationTokenRecord:
    """A delegation token was removed."""

    token_id: str = spec("string")


@dataclass(slots=True)
class RegisterControllerRecord:
    """A controller registered."""

    controller_id: int = spec("int32")
    incarnation_id: UUID = spec("uuid")
    zk_migration_ready: bool = spec("bool")
    end_points: tuple[EndpointData, ...] = spec([EndpointData])
    features: tuple[FeatureRange, ...] = spec([FeatureRange])


@dataclass(slots=True)
class ClearElrRecord:
    """The eligible leader replicas of a topic, or of all without a name, are void."""

    topic_name: str = spec("string")


@dataclass(slots=True)
class UnregisterControllerRecord:
    """A controller's registration was removed."""

    controller_id: int = spec("int32")


API_KEYS: Final[dict[type, int]] = {
    RegisterBrokerRecord: 0,
    UnregisterBrokerRecord: 1,
    TopicRecord: 2,
    PartitionRecord: 3,
    ConfigRecord: 4,
    PartitionChangeRecord: 5,
    FenceBrokerRecord: 7,
    UnfenceBrokerRecord: 8,
    RemoveTopicRecord: 9,
    DelegationTokenRecord: 10,
    UserScramCredentialRecord: 11,
    FeatureLevelRecord: 12,
    ClientQuotaRecord: 14,
    ProducerIdsRecord: 15,
    BrokerRegistrationChangeRecord: 17,
    AccessControlEntryRecord: 18,
    RemoveAccessControlEntryRecord: 19,
    NoOpRecord: 20,
    ZkMigrationStateRecord: 21,
    RemoveUserScramCredentialRecord: 22,
    BeginTransactionRecord: 23,
    EndTransactionRecord: 24,
    AbortTransactionRecord: 25,
    RemoveDelegationTokenRecord: 26,
    RegisterControllerRecord: 27,
    ClearElrRecord: 28,
    UnregisterControllerRecord: 29,
}

RECORD_CLASSES: Final[dict[int, type]] = {key: cls for cls, key in API_KEYS.items()}

HIGHEST_VERSIONS: Final[dict[type, int]] = {
    RegisterBrokerRecord: 4,
    PartitionRecord: 2,
    PartitionChangeRecord: 2,
    BrokerRegistrationChangeRecord: 3,
}
"""Newest version of the records that have more than version 0."""


def encode_record(record: Any, version: int) -> bytes:
    """A record with its frame. Raises codec.UnsupportedVersion if `version` cannot say what the record says."""
    out = bytearray((FRAME_VERSION, API_KEYS[type(record)], version))
    encode_into(out, record, version)
    return bytes(out)


def decode_record(value: Buffer) -> tuple[Any, int]:
    """(record, its version) of a framed record. Raises MalformedRecord, also for records that 4.4 does not know."""
    try:
        frame_version, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (IndexError, struct.error) as error:
        raise MalformedRecord(f"the frame of a metadata record: {error}") from error
    if frame_version != FRAME_VERSION:
        raise MalformedRecord(f"metadata record with frame version {frame_version}; this node knows {FRAME_VERSION}")
    cls = RECORD_CLASSES.get(api_key)
    if cls is None:
        raise MalformedRecord(f"metadata record of unknown type {api_key}")
    if version > HIGHEST_VERSIONS.get(cls, 0):
        raise MalformedRecord(f"{cls.__name__} of version {version} is newer than this node")
    return decode(cls, version, value, position), version
