"""The values of the records of streams groups (KIP-1071) in `__consumer_offsets`, in Kafka's format.

Names are Kafka's; all are of version 0. `modern_group_records.py` has their keys. A task is a subtopology's
partition: number n of it reads partition n of each topic that the subtopology reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.model import Millis
from ottla.protocol.internal.codec import spec


@dataclass(slots=True, frozen=True)
class LastAssignmentConfig:
    key: str = spec("string")
    value: str = spec("string")


@dataclass(slots=True, frozen=True)
class StreamsGroupMetadataValue:
    """Type 17."""

    epoch: int = spec("int32")
    metadata_hash: int = spec("int64")
    validated_topology_epoch: int = spec("int32", tag=0, default=-1)
    """Epoch of the newest topology whose topics all existed."""
    last_assignment_configs: tuple[LastAssignmentConfig, ...] | None = spec(
        [LastAssignmentConfig], nullable="0+", tag=1, default=None
    )
    """The group's settings that the last assignment obeyed."""
    stored_description_topology_epoch: int = spec("int32", tag=2, default=-1)
    """Epoch of the topology whose description is kept (KIP-1331); -1 for none, -2 where that is uncertain."""
    failed_description_topology_epoch: int = spec("int32", tag=3, default=-1)
    """Epoch of the topology whose description was refused for good; -1 for none."""


@dataclass(slots=True, frozen=True)
class StreamsEndpoint:
    host: str = spec("string")
    port: int = spec("uint16")


@dataclass(slots=True, frozen=True)
class KeyValue:
    key: str = spec("string")
    value: str = spec("string")


@dataclass(slots=True, frozen=True)
class StreamsGroupMemberMetadataValue:
    """Type 19."""

    instance_id: str | None = spec("string", nullable="0+", default=None)
    rack_id: str | None = spec("string", nullable="0+", default=None)
    client_id: str = spec("string")
    client_host: str = spec("string")
    rebalance_timeout_ms: Millis = spec("int32", default=-1)
    topology_epoch: int = spec("int32")
    process_id: str = spec("string")
    """Members of one process share its state stores."""
    user_endpoint: StreamsEndpoint | None = spec(StreamsEndpoint, nullable="0+", default=None)
    """Where the application answers queries of its state."""
    client_tags: tuple[KeyValue, ...] = spec([KeyValue])


@dataclass(slots=True, frozen=True)
class StreamsGroupTargetAssignmentMetadataValue:
    """Type 20."""

    assignment_epoch: int = spec("int32")
    assignment_timestamp: Millis = spec("int64", tag=0, default=0, ignorable=True)
    """When the assignment was computed (KIP-1263)."""


@dataclass(slots=True, frozen=True)
class TargetTasks:
    subtopology_id: str = spec("string")
    partitions: tuple[int, ...] = spec("[]int32")


@dataclass(slots=True, frozen=True)
class StreamsGroupTargetAssignmentMemberValue:
    """Type 21."""

    active_tasks: tuple[TargetTasks, ...] = spec([TargetTasks])
    standby_tasks: tuple[TargetTasks, ...] = spec([TargetTasks])
    warmup_tasks: tuple[TargetTasks, ...] = spec([TargetTasks])


@dataclass(slots=True, frozen=True)
class CurrentTasks:
    subtopology_id: str = spec("string")
    partitions: tuple[int, ...] = spec("[]int32")
    assignment_epochs: tuple[int, ...] | None = spec("[]int32", nullable="0+", tag=0, default=())
    """When each of `partitions` was assigned to the member; of active tasks."""


@dataclass(slots=True, frozen=True)
class StreamsGroupCurrentMemberAssignmentValue:
    """Type 22."""

    member_epoch: int = spec("int32")
    previous_member_epoch: int = spec("int32")
    """A member that missed the answer with its epoch sends this one once more."""
    state: int = spec("int8")
    active_tasks: tuple[CurrentTasks, ...] = spec([CurrentTasks])
    standby_tasks: tuple[CurrentTasks, ...] = spec([CurrentTasks])
    warmup_tasks: tuple[CurrentTasks, ...] = spec([CurrentTasks])
    active_tasks_pending_revocation: tuple[CurrentTasks, ...] = spec([CurrentTasks])
    standby_tasks_pending_revocation: tuple[CurrentTasks, ...] = spec([CurrentTasks])
    warmup_tasks_pending_revocation: tuple[CurrentTasks, ...] = spec([CurrentTasks])


@dataclass(slots=True, frozen=True)
class TopicConfig:
    key: str = spec("string")
    value: str = spec("string")


@dataclass(slots=True, frozen=True)
class TopicInfo:
    """A topic that the brokers create for the application."""

    name: str = spec("string")
    partitions: int = spec("int32")
    """0 where the topics that are read say how many."""
    replication_factor: int = spec("int16")
    """0 for the brokers' default."""
    topic_configs: tuple[TopicConfig, ...] = spec([TopicConfig])


@dataclass(slots=True, frozen=True)
class CopartitionGroup:
    """Topics of a subtopology that need as many partitions as each other; places in its lists."""

    source_topics: tuple[int, ...] = spec("[]int16")
    source_topic_regex: tuple[int, ...] = spec("[]int16")
    repartition_source_topics: tuple[int, ...] = spec("[]int16")


@dataclass(slots=True, frozen=True)
class Subtopology:
    subtopology_id: str = spec("string")
    source_topics: tuple[str, ...] = spec("[]string")
    source_topic_regex: tuple[str, ...] = spec("[]string")
    state_changelog_topics: tuple[TopicInfo, ...] = spec([TopicInfo])
    repartition_sink_topics: tuple[str, ...] = spec("[]string")
    repartition_source_topics: tuple[TopicInfo, ...] = spec([TopicInfo])
    copartition_groups: tuple[CopartitionGroup, ...] = spec([CopartitionGroup])


@dataclass(slots=True, frozen=True)
class StreamsGroupTopologyValue:
    """Type 23."""

    epoch: int = spec("int32")
    subtopologies: tuple[Subtopology, ...] = spec([Subtopology])
    description: bytes = spec("bytes", tag=1331, default=b"")
    """A `TopologyDescription` (KIP-1331). A field of ours: Kafka, which gives descriptions to a plug-in, passes over
    the tag, and deletes the record with the group."""


StreamsGroupValue = (
    StreamsGroupMetadataValue
    | StreamsGroupMemberMetadataValue
    | StreamsGroupTargetAssignmentMetadataValue
    | StreamsGroupTargetAssignmentMemberValue
    | StreamsGroupCurrentMemberAssignmentValue
    | StreamsGroupTopologyValue
)

STREAMS_GROUP_VALUES: Final[dict[int, type[StreamsGroupValue]]] = {
    17: StreamsGroupMetadataValue,
    19: StreamsGroupMemberMetadataValue,
    20: StreamsGroupTargetAssignmentMetadataValue,
    21: StreamsGroupTargetAssignmentMemberValue,
    22: StreamsGroupCurrentMemberAssignmentValue,
    23: StreamsGroupTopologyValue,
}
"""Keyed by the int16 at the start of the key. Type 18 was that of the topics' partitions, before 4.1."""
