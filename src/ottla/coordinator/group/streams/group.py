"""A streams group (KIP-1071): it answers questions and keeps its own counts right. See `modern_group.py` for how it
changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from ottla.coordinator.group.kind import Undo
from ottla.coordinator.group.modern_group import ModernGroup
from ottla.coordinator.group.streams.assignor import MemberTasks
from ottla.coordinator.group.streams.member import NO_TASKS, HeldTasks, StreamsMember, target_tasks
from ottla.coordinator.group.streams.topology import ConfiguredTopology, required_topics
from ottla.coordinator.group.streams.warmups import Refined, Reported
from ottla.model import Millis
from ottla.protocol.internal.group_records import STREAMS, GroupRecord, ModernKey
from ottla.protocol.schemas.records import (
    LastAssignmentConfig,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyValue,
    Subtopology,
)

METADATA, MEMBER, TARGET, MEMBER_TARGET, MEMBER_CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
"""Types of records."""
NOBODY: Final[frozenset[str]] = frozenset()


class Asked(NamedTuple):
    """A member was asked for a description, of a topology's epoch."""

    epoch: int
    attempts: int
    again_ms: Millis
    """When the next one is asked, on the timer clock."""


class Topology:
    """The topology of the members, as sent by the first of them."""

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        self.value = value
        self.epoch = value.epoch
        self.by_id: dict[str, Subtopology] = {each.subtopology_id: each for each in value.subtopologies}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and (self.epoch, self.by_id) == (other.epoch, other.by_id)

    __hash__ = None  # type: ignore[assignment]

    def with_description(self, description: bytes) -> StreamsGroupTopologyValue:
        return self.value.replaced(description=description)

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


class StreamsGroup(ModernGroup[StreamsMember, MemberTasks]):
    """Its epoch grows whenever members, topics or settings of the assignment change."""

    TYPES = STREAMS
    group_type: Literal["streams"] = "streams"
    protocol_type = "streams"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, NO_TASKS)
        self.validated_topology_epoch = 0
        """Epoch of the topology that can run with the existing topics; -1 for none."""
        self.assignment_configs: Mapping[str, str] = {}
        """The settings of the last assignment."""
        self.stored_description_epoch = -1
        """Epoch of the topology whose description is kept; -1 for none, -2 where Kafka's broker does not know."""
        self.failed_description_epoch = -1
        """Epoch of the topology whose description was refused; -1 for none."""
        self.topology: Topology | None = None
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.active_processes: dict[tuple[str, int], str] = {}
        """The process that has a task, or has still to give it up."""
        self.standby_processes: dict[tuple[str, int], Counter[str]] = {}
        """The processes that have a copy of a task, and in how many members. There are two for a moment while a static
        member comes back in the process of another one."""
        self.warmup_processes: dict[tuple[str, int], Counter[str]] = {}
        self.configured: ConfiguredTopology | None = None
        """Soft: the topology with the topics as they are."""
        self.shutdown_requested_by: str | None = None
        """Soft: the member that asks all others to stop, until the group is empty."""
        self.reports: dict[str, Reported] = {}
        """Soft: what members have reported of their tasks."""
        self.refined = Refined()
        """Soft: what members move to."""
        self.is_refining = True
        """Soft: whether what members move to may have changed."""
        self.asked: Asked | None = None
        """Soft: the last member that was asked for a description of the topology."""
        self.endpoint_epoch = 0
        """Soft: grows when a member with an endpoint has other tasks."""
        self.endpoints: dict[str, dict[str, Any]] = {}
        """Soft: what is told of endpoints, by member, as it was when it was made; see `endpoints.py`."""

    # Questions

    @property
    def is_ready(self) -> bool:
        return self.topology is not None and self.topology.epoch == self.validated_topology_epoch

    @property
    def topics(self) -> frozenset[str]:
        return frozenset() if self.topology is None else self.topology.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def static_member(self, instance_id: str) -> StreamsMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    # Records

    def metadata_record(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
    ) -> GroupRecord:
        rows = tuple(LastAssignmentConfig(*each) for each in sorted(configs.items()))
        value = StreamsGroupMetadataValue(
            epoch,
            metadata_hash,
            validated_topology_epoch,
            rows,
            self.stored_description_epoch,
            self.failed_description_epoch,
        )
        return GroupRecord(self.key(METADATA), value)

    def described_record(self, *, stored: int = -2, failed: int = -1) -> GroupRecord:
        """The group's epochs as they are, with another one of a description that is kept or refused; neither of them
        goes back."""
        same = self.metadata_record(
            self.epoch, self.metadata_hash, self.validated_topology_epoch, self.assignment_configs
        )
        assert isinstance(same.value, StreamsGroupMetadataValue)
        value = same.value.replaced(
            stored_description_topology_epoch=max(self.stored_description_epoch, stored),
            failed_description_topology_epoch=max(self.failed_description_epoch, failed),
        )
        return GroupRecord(self.key(METADATA), value)

    def last_keys(self) -> list[ModernKey]:
        return [self.key(METADATA), self.key(TOPOLOGY)]

    # Changes, for `replay`

    def new_member(self, member_id: str) -> StreamsMember:
        return StreamsMember(member_id)

    def target_of(self, value: StreamsGroupTargetAssignmentMemberValue) -> MemberTasks:
        return target_tasks(value)

    def set_metadata(self, value: StreamsGroupMetadataValue) -> None:
        configs = {each.key: each.value for each in value.last_assignment_configs or ()}
        self._set_metadata(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)
        self.stored_description_epoch = value.stored_description_topology_epoch
        self.failed_description_epoch = value.failed_description_topology_epoch

    def saved_metadata(self) -> Undo:
        before = (self.epoch, self.metadata_hash, self.validated_topology_epoch, self.assignment_configs)
        described = self.stored_description_epoch, self.failed_description_epoch

        def restore() -> None:
            self._set_metadata(*before)
            self.stored_description_epoch, self.failed_description_epoch = described

        return restore

    def _set_metadata(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
    ) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash
        self.validated_topology_epoch, self.assignment_configs = validated_topology_epoch, configs
        self._state = None

    def set_other(self, number: int, name: str, value: StreamsGroupTopologyValue | None) -> None:
        assert number == TOPOLOGY
        self._set_topology(None if value is None else Topology(value))

    def saved_other(self, number: int, name: str) -> Undo:
        topology = self.topology

        def restore() -> None:
            self._set_topology(topology)
            self.set_configured(None)

        return restore

    def _set_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self._state = None

    def set_configured(self, configured: ConfiguredTopology | None) -> None:
        self.configured = configured
        self.endpoints.clear()  # the topics of a subtopology may be others

    def set_member(self, member_id: str, new: StreamsMember | None) -> None:
        old = self.members.pop(member_id, None) if new is None else self.members.get(member_id)
        if new is not None:
            self.members[member_id] = new
        if old is not None:
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
            self._release(old.assigned, old.process_id)
            self._release(old.revoking, old.process_id)
        if new is None:
            self.reports.pop(member_id, None)
            if member_id in self.refined.others:  # it may come back under its id, without them
                others = {name: tasks for name, tasks in self.refined.others.items() if name != member_id}
                self.refined = self.refined._replace(others=others)
        else:
            if new.instance_id is not None:
                self.static_members[new.instance_id] = member_id
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
                    processes.setdefault((subtopology_id, number), Counter())[process_id] += 1

    def _release(self, tasks: HeldTasks, process_id: str) -> None:
        for subtopology_id, epochs in tasks.active.items():
            for number in epochs:
                if self.active_processes.get((subtopology_id, number)) == process_id:
                    del self.active_processes[subtopology_id, number]
        for processes, found in ((self.standby_processes, tasks.standby), (self.warmup_processes, tasks.warmup)):
            for subtopology_id, numbers in found.items():
                for number in numbers:
                    having = processes[subtopology_id, number]
                    having[process_id] -= 1
                    if not having[process_id]:
                        del having[process_id]
                        if not having:
                            del processes[subtopology_id, number]
