"""The values of the records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's format.

Names are Kafka's; all are of version 0. `modern_group_records.py` has their keys. Nobody changes a value. Those
that are written with each member that joins, or for each in a rebalance, are not frozen: making a frozen one takes
three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.model import ZERO_UUID, Millis
from ottla.protocol.internal.codec import spec


@dataclass(slots=True, unsafe_hash=True)
class ConsumerGroupMetadataValue:
    """Type 3."""

    epoch: int = spec("int32")
    metadata_hash: int = spec("int64", tag=0, default=0)
    """Hash of all topics that the group reads (KIP-1101); 0 if it has to be computed."""


@dataclass(slots=True, frozen=True)
class PartitionRacks:
    partition: int = spec("int32")
    racks: tuple[str, ...] = spec("[]string")


@dataclass(slots=True, frozen=True)
class SubscribedTopic:
    topic_id: UUID = spec("uuid", default=ZERO_UUID)
    topic_name: str = spec("string")
    num_partitions: int = spec("int32")
    partition_metadata: tuple[PartitionRacks, ...] = spec([PartitionRacks])


@dataclass(slots=True, frozen=True)
class ConsumerGroupPartitionMetadataValue:
    """Type 4, which Kafka wrote until 4.1 had `metadata_hash`."""

    topics: tuple[SubscribedTopic, ...] = spec([SubscribedTopic])


@dataclass(slots=True, frozen=True)
class ClassicProtocol:
    name: str = spec("string")
    metadata: bytes = spec("bytes")


@dataclass(slots=True, frozen=True)
class ClassicMemberMetadata:
    session_timeout_ms: Millis = spec("int32")
    supported_protocols: tuple[ClassicProtocol, ...] = spec([ClassicProtocol])


@dataclass(slots=True, unsafe_hash=True)
class ConsumerGroupMemberMetadataValue:
    """Type 5."""

    instance_id: str | None = spec("string", nullable="0+", default=None)
    rack_id: str | None = spec("string", nullable="0+", default=None)
    client_id: str = spec("string")
    client_host: str = spec("string")
    subscribed_topic_names: tuple[str, ...] = spec("[]string")
    subscribed_topic_regex: str | None = spec("string", nullable="0+", default=None)
    rebalance_timeout_ms: Millis = spec("int32", default=-1)
    server_assignor: str | None = spec("string", nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = spec(
        ClassicMemberMetadata, nullable="0+", tag=0, default=ClassicMemberMetadata()
    )
    """Set for a member that uses the classic protocol. If left out, Kafka's generated code reads one of zeros, whatever
    its schema says, so None is written."""


@dataclass(slots=True, frozen=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """Type 6."""

    assignment_epoch: int = spec("int32")
    assignment_timestamp: Millis = spec("int64", tag=0, default=0, ignorable=True)
    """When the assignment was computed (KIP-1263)."""


@dataclass(slots=True, unsafe_hash=True)
class TargetPartitions:
    topic_id: UUID = spec("uuid", default=ZERO_UUID)
    partitions: tuple[int, ...] = spec("[]int32")


@dataclass(slots=True, unsafe_hash=True)
class ConsumerGroupTargetAssignmentMemberValue:
    """Type 7."""

    topic_partitions: tuple[TargetPartitions, ...] = spec([TargetPartitions])


@dataclass(slots=True, unsafe_hash=True)
class CurrentPartitions:
    topic_id: UUID = spec("uuid", default=ZERO_UUID)
    partitions: tuple[int, ...] = spec("[]int32")
    assignment_epochs: tuple[int, ...] | None = spec("[]int32", nullable="0+", tag=0, default=())
    """When each of `partitions` was assigned to the member; as long as they are."""


@dataclass(slots=True, unsafe_hash=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """Type 8."""

    member_epoch: int = spec("int32")
    previous_member_epoch: int = spec("int32")
    """A member that missed the answer with its epoch sends this one once more."""
    state: int = spec("int8")
    assigned_partitions: tuple[CurrentPartitions, ...] = spec([CurrentPartitions])
    partitions_pending_revocation: tuple[CurrentPartitions, ...] = spec([CurrentPartitions])


@dataclass(slots=True, frozen=True)
class ConsumerGroupRegularExpressionValue:
    """Type 16: the topics that a pattern matched, in the image `version`, at `timestamp`."""

    topics: tuple[str, ...] = spec("[]string")
    version: int = spec("int64")
    timestamp: Millis = spec("int64")


ConsumerGroupValue = (
    ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

CONSUMER_GROUP_VALUES: Final[dict[int, type[ConsumerGroupValue]]] = {
    3: ConsumerGroupMetadataValue,
    4: ConsumerGroupPartitionMetadataValue,
    5: ConsumerGroupMemberMetadataValue,
    6: ConsumerGroupTargetAssignmentMetadataValue,
    7: ConsumerGroupTargetAssignmentMemberValue,
    8: ConsumerGroupCurrentMemberAssignmentValue,
    16: ConsumerGroupRegularExpressionValue,
}
"""Keyed by the int16 at the start of the key."""
