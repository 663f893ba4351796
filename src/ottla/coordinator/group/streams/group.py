"""A streams group (KIP-1071): it answers questions and keeps its own counts right. All of it is in the log, and only
`replay.py` changes it, but for what is marked as soft."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal

from ottla.coordinator.group.streams.assignor import MemberTasks
from ottla.coordinator.group.streams.member import NO_TASKS, HeldTasks, StreamsMember
from ottla.coordinator.group.streams.topology import ConfiguredTopology, required_topics
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.internal.group_records import GroupRecord, Value
from ottla.protocol.internal.modern_group_records import ModernKey
from ottla.protocol.internal.streams_group_records import (
    LastAssignmentConfig,
    StreamsGroupMetadataValue,
    StreamsGroupTopologyValue,
    Subtopology,
)

METADATA, MEMBER, TARGET, MEMBER_TARGET, MEMBER_CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
"""Types of records."""
NEW_EPOCH: Final = "rebalances"
"""An event of a group, as `GroupState.observe` gets it: members or topics have changed."""
NOBODY: Final[frozenset[str]] = frozenset()


class Topology:
    """The topology of the members, as sent by the first of them."""

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        self.value = value
        self.epoch = value.epoch
        self.by_id: dict[str, Subtopology] = {each.subtopology_id: each for each in value.subtopologies}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and (self.epoch, self.by_id) == (other.epoch, other.by_id)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def topics(self) -> frozenset[str]:
        """Topics that must exist, internal topics too."""
        return required_topics(self.value)

    @cached_property
    def readers(self) -> dict[str, str]:
        """The subtopology that reads a topic, by its name."""
        found = {}
        for each in self.value.subtopologies:
            names = (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
            found.update(dict.fromkeys(names, each.subtopology_id))
        return found


class StreamsGroup:
    group_type: Literal["streams"] = "streams"
    protocol_type = "streams"
    protocol_name = None
    uses_consumer_protocol = True
    """The topics that it reads are known."""
    keeps_offsets = True
    expires = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        """Grows whenever members, topics or settings of the assignment change."""
        self.metadata_hash = 0
        self.validated_topology_epoch = 0
        """Epoch of the topology that can run with the existing topics; -1 for none."""
        self.assignment_configs: Mapping[str, str] = {}
        """The settings of the last assignment."""
        self.assignment_epoch = 1
        """The group epoch that the target assignment is for."""
        self.assignment_timestamp_ms: Millis = 0
        """Time at which it was computed; 0 if unknown."""
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, MemberTasks] = {}
        """Target assignment of each member."""
        self.topology: Topology | None = None
        self.active_processes: dict[tuple[str, int], str] = {}
        """The process that has a task, or has still to give it up."""
        self.standby_processes: dict[tuple[str, int], set[str]] = {}
        self.warmup_processes: dict[tuple[str, int], set[str]] = {}
        self.configured: ConfiguredTopology | None = None
        """Soft: the topology with the topics as they are."""
        self.refresh_deadline_ms: Millis = 0
        """Soft: when topics are looked at again, on the wall clock."""
        self.refresh_epoch = 0
        """Soft: the group epoch that `refresh_deadline_ms` belongs to; a greater one than the group's was undone."""
        self.fence_epochs: dict[str, int] = {}
        """Soft: the epoch that a member has to leave before its rebalance timer expires."""
        self.shutdown_requested_by: str | None = None
        """Soft: the member that asks all others to stop, until the group is empty."""
        self.endpoint_epoch = 0
        """Soft: grows when a member with an endpoint has other tasks."""
        self.endpoints: dict[str, dict[str, Any]] = {}
        """Soft: what is told of endpoints, by member, as it was when it was made; see `endpoints.py`."""
        self._state: str | None = None

    def request_refresh(self) -> None:
        """A topic has changed: the next heartbeat looks at the topics."""
        self.refresh_deadline_ms = self.refresh_epoch = 0

    # Questions

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def shown_state(self) -> str:
        if self._state is None:
            self._state = self._compute_state()
        return self._state

    def _compute_state(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def member(self, member_id: str) -> StreamsMember:
        """Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.unknown_member_id, message)
        return found

    def target(self, member_id: str) -> MemberTasks:
        return self.targets.get(member_id, NO_TASKS)

    def has_metadata_expired(self, now_ms: Millis) -> bool:
        return now_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch

    # Records

    def key(self, number: int, name: str | None = None) -> ModernKey:
        return ModernKey(number, self.group_id, name)

    def metadata_record(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
    ) -> GroupRecord:
        rows = tuple(LastAssignmentConfig(*each) for each in sorted(configs.items()))
        value = StreamsGroupMetadataValue(epoch, metadata_hash, validated_topology_epoch, rows)
        return GroupRecord(self.key(METADATA), value)

    def removal(self, member_id: str) -> list[GroupRecord]:
        """Records that delete a member, in the order that Kafka checks."""
        return [GroupRecord(self.key(number, member_id), None) for number in (MEMBER_CURRENT, MEMBER_TARGET, MEMBER)]

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones that delete the group, except for its offsets."""
        return [
            GroupRecord(key, None)
            for key in (
                *(self.key(MEMBER_CURRENT, member_id) for member_id in self.members),
                *(self.key(MEMBER_TARGET, member_id) for member_id in {**self.members, **self.targets}),
                self.key(TARGET),
                *(self.key(MEMBER, member_id) for member_id in self.members),
                self.key(METADATA),
                self.key(TOPOLOGY),
            )
        ]

    # Changes, for `replay.py`

    def set_metadata(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
    ) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash
        self.validated_topology_epoch, self.assignment_configs = validated_topology_epoch, configs
        self._state = None

    def set_assignment_epoch(self, epoch: int, timestamp_ms: Millis) -> None:
        self.assignment_epoch, self.assignment_timestamp_ms = epoch, timestamp_ms
        self._state = None

    def set_target(self, member_id: str, tasks: MemberTasks | None) -> None:
        if tasks is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = tasks

    def set_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self._state = None

    def set_configured(self, configured: ConfiguredTopology | None) -> None:
        self.configured = configured
        self.endpoints.clear()  # the topics of a subtopology may be others

    def set_member(self, member_id: str, new: StreamsMember | None) -> None:
        """Put a member in place of the one with its id, or (None) remove it."""
        old = self.members.pop(member_id, None) if new is None else self.members.get(member_id)
        if new is not None:
            self.members[member_id] = new
        if old is not None:
            self._release(old.assigned, old.process_id)
            self._release(old.revoking, old.process_id)
        if new is not None:
            self._own(new.assigned, new.process_id)
            self._own(new.revoking, new.process_id)
        if not self.members:
            self.shutdown_requested_by = None
        self.endpoints.pop(member_id, None)
        self._state = None

    def _own(self, tasks: HeldTasks, process_id: str) -> None:
        for subtopology_id, epochs in tasks.active.items():
            for number in epochs:
                self.active_processes[subtopology_id, number] = process_id
        for processes, found in ((self.standby_processes, tasks.standby), (self.warmup_processes, tasks.warmup)):
            for subtopology_id, numbers in found.items():
                for number in numbers:
                    processes.setdefault((subtopology_id, number), set()).add(process_id)

    def _release(self, tasks: HeldTasks, process_id: str) -> None:
        for subtopology_id, epochs in tasks.active.items():
            for number in epochs:
                if self.active_processes.get((subtopology_id, number)) == process_id:
                    del self.active_processes[subtopology_id, number]
        for processes, found in ((self.standby_processes, tasks.standby), (self.warmup_processes, tasks.warmup)):
            for subtopology_id, numbers in found.items():
                for number in numbers:
                    having = processes.get((subtopology_id, number), set())
                    having.discard(process_id)
                    if not having:
                        processes.pop((subtopology_id, number), None)


def put(key: ModernKey, value: Value) -> GroupRecord:
    return GroupRecord(key, value)
