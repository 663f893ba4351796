"""The values of the records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's format.

Names are Kafka's; all are of version 0. `modern_group_records.py` has their keys. What is delivered to whom is in
another topic (`share_records.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.model import ZERO_UUID, Millis
from ottla.protocol.internal.codec import spec


@dataclass(slots=True, frozen=True)
class ShareGroupMemberMetadataValue:
    """Type 10."""

    rack_id: str | None = spec("string", nullable="0+", default=None)
    client_id: str = spec("string")
    client_host: str = spec("string")
    subscribed_topic_names: tuple[str, ...] = spec("[]string")


@dataclass(slots=True, frozen=True)
class ShareGroupMetadataValue:
    """Type 11."""

    epoch: int = spec("int32")
    metadata_hash: int = spec("int64")
    """Hash of all topics that the group reads."""


@dataclass(slots=True, frozen=True)
class ShareGroupTargetAssignmentMetadataValue:
    """Type 12."""

    assignment_epoch: int = spec("int32")
    assignment_timestamp: Millis = spec("int64", tag=0, default=0, ignorable=True)
    """When the assignment was computed (KIP-1263)."""


@dataclass(slots=True, frozen=True)
class SharePartitions:
    topic_id: UUID = spec("uuid", default=ZERO_UUID)
    partitions: tuple[int, ...] = spec("[]int32")


@dataclass(slots=True, frozen=True)
class ShareGroupTargetAssignmentMemberValue:
    """Type 13."""

    topic_partitions: tuple[SharePartitions, ...] = spec([SharePartitions])


@dataclass(slots=True, frozen=True)
class ShareGroupCurrentMemberAssignmentValue:
    """Type 14."""

    member_epoch: int = spec("int32")
    previous_member_epoch: int = spec("int32")
    state: int = spec("int8")
    assigned_partitions: tuple[SharePartitions, ...] = spec([SharePartitions])


@dataclass(slots=True, frozen=True)
class TopicPartitionsInfo:
    topic_id: UUID = spec("uuid", default=ZERO_UUID)
    topic_name: str = spec("string")
    partitions: tuple[int, ...] = spec("[]int32")


@dataclass(slots=True, frozen=True)
class TopicInfo:
    topic_id: UUID = spec("uuid", default=ZERO_UUID)
    topic_name: str = spec("string")


@dataclass(slots=True, frozen=True)
class ShareGroupStatePartitionMetadataValue:
    """Type 15: which share-partitions the share coordinator is asked to make, has made, and is asked to delete."""

    initializing_topics: tuple[TopicPartitionsInfo, ...] = spec([TopicPartitionsInfo])
    initialized_topics: tuple[TopicPartitionsInfo, ...] = spec([TopicPartitionsInfo])
    deleting_topics: tuple[TopicInfo, ...] = spec([TopicInfo])


ShareGroupValue = (
    ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
)

SHARE_GROUP_VALUES: Final[dict[int, type[ShareGroupValue]]] = {
    10: ShareGroupMemberMetadataValue,
    11: ShareGroupMetadataValue,
    12: ShareGroupTargetAssignmentMetadataValue,
    13: ShareGroupTargetAssignmentMemberValue,
    14: ShareGroupCurrentMemberAssignmentValue,
    15: ShareGroupStatePartitionMetadataValue,
}
"""Keyed by the int16 at the start of the key. Type 9 is no longer in use."""
