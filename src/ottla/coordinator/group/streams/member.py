"""One member of a streams group, as a value that never changes; what is known of it is in two records."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple

from ottla.coordinator.group.streams.assignor import MemberTasks
from ottla.model import Millis
from ottla.protocol.schemas.records import (
    CurrentTasks,
    KeyValue,
    StreamsEndpoint,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    TargetTasks,
)

LEAVING: Final = -1
"""The epoch of a member that leaves."""
LEAVING_STATIC: Final = -2
"""The epoch of a static member that leaves and will be back."""

Tasks = Mapping[str, frozenset[int]]
"""Partitions by subtopology. **Invariant**: no subtopology without any."""
Epochs = Mapping[str, Mapping[int, int]]
"""Keyed by subtopology and partition: the epoch in which it was assigned. **Invariant**: no subtopology without any."""
NO_TASKS: Final = MemberTasks()


class MemberState(enum.IntEnum):
    """Numbered as in Kafka."""

    STABLE = 1
    """It has the tasks of its epoch."""
    UNREVOKED_TASKS = 2
    """It must revoke tasks before it can have the next epoch."""
    UNRELEASED_TASKS = 3
    """It has its epoch, and waits for tasks that other members must revoke."""
    UNKNOWN = 127
    """Written by a newer Kafka."""


class HeldTasks(NamedTuple):
    """The tasks that a member has, or has still to give up."""

    active: Epochs = {}
    standby: Tasks = {}
    warmup: Tasks = {}

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def runs(self, tasks: MemberTasks) -> bool:
        """Whether it runs just the active ones of these."""
        return {name: frozenset(epochs) for name, epochs in self.active.items()} == tasks.active

    def is_same(self, tasks: MemberTasks) -> bool:
        """Whether it has just these."""
        return self.runs(tasks) and self.standby == tasks.standby and self.warmup == tasks.warmup

    def overlaps(self, owned: MemberTasks) -> bool:
        """Whether a member reports one of these tasks with the same kind."""
        return (
            any(not numbers.isdisjoint(self.active.get(each, ())) for each, numbers in owned.active.items())
            or any(not numbers.isdisjoint(self.standby.get(each, ())) for each, numbers in owned.standby.items())
            or any(not numbers.isdisjoint(self.warmup.get(each, ())) for each, numbers in owned.warmup.items())
        )

    def contains(self, owned: MemberTasks) -> bool:
        """Whether all that a member says that it has is among them."""
        return (
            all(each in self.active and numbers <= self.active[each].keys() for each, numbers in owned.active.items())
            and all(each in self.standby and numbers <= self.standby[each] for each, numbers in owned.standby.items())
            and all(each in self.warmup and numbers <= self.warmup[each] for each, numbers in owned.warmup.items())
        )


NOTHING: Final = HeldTasks()


@dataclass(frozen=True, slots=True)
class StreamsMember:
    uses_classic_protocol: ClassVar[bool] = False

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    """The epoch sent by a member that has missed the answer with its new one."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Millis = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    """Members of one process share its state stores: no two of them have the same task."""
    user_endpoint: StreamsEndpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: HeldTasks = NOTHING
    revoking: HeldTasks = NOTHING
    """Tasks that it still has to revoke."""

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """When an active task that it has, or has still to give up, was assigned to it."""
        found = self.assigned.active.get(subtopology_id, {}).get(partition)
        return self.revoking.active.get(subtopology_id, {}).get(partition) if found is None else found

    # Records

    def to_metadata(self) -> StreamsGroupMemberMetadataValue:
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=self.user_endpoint,
            client_tags=tuple(KeyValue(*each) for each in sorted(self.client_tags.items())),
        )

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=value.user_endpoint,
            client_tags={each.key: each.value for each in value.client_tags},
        )

    def to_current(self) -> StreamsGroupCurrentMemberAssignmentValue:
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=_active_rows(self.assigned.active),
            standby_tasks=_rows(self.assigned.standby),
            warmup_tasks=_rows(self.assigned.warmup),
            active_tasks_pending_revocation=_active_rows(self.revoking.active),
            standby_tasks_pending_revocation=_rows(self.revoking.standby),
            warmup_tasks_pending_revocation=_rows(self.revoking.warmup),
        )

    def with_current(self, value: StreamsGroupCurrentMemberAssignmentValue | None) -> StreamsMember:
        """After its current assignment was replayed; None: it was deleted, and so will be the member."""
        if value is None:
            return replace(self, epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING, revoking=NOTHING)
        known = value.state in [*map(int, MemberState)]
        epoch = value.member_epoch
        return replace(
            self,
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=HeldTasks(
                _epochs(value.active_tasks, epoch), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)
            ),
            revoking=HeldTasks(
                _epochs(value.active_tasks_pending_revocation, epoch),
                _tasks(value.standby_tasks_pending_revocation),
                _tasks(value.warmup_tasks_pending_revocation),
            ),
        )


def target_value(tasks: MemberTasks) -> StreamsGroupTargetAssignmentMemberValue:
    def rows(of: Tasks) -> tuple[TargetTasks, ...]:
        return tuple(TargetTasks(each, tuple(sorted(numbers))) for each, numbers in sorted(of.items()))

    return StreamsGroupTargetAssignmentMemberValue(rows(tasks.active), rows(tasks.standby), rows(tasks.warmup))


def target_tasks(value: StreamsGroupTargetAssignmentMemberValue) -> MemberTasks:
    return MemberTasks(_tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks))


def _active_rows(epochs: Epochs) -> tuple[CurrentTasks, ...]:
    return tuple(
        CurrentTasks(each, tuple(sorted(found)), tuple(found[number] for number in sorted(found)))
        for each, found in sorted(epochs.items())
    )


def _rows(tasks: Tasks) -> tuple[CurrentTasks, ...]:
    return tuple(CurrentTasks(each, tuple(sorted(numbers))) for each, numbers in sorted(tasks.items()))


def _epochs(rows: Iterable[CurrentTasks], member_epoch: int) -> Epochs:
    """Older brokers wrote no epochs of tasks: they are taken to be of the member's."""
    found = {}
    for each in rows:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = (member_epoch,) * len(each.partitions)
        found[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


def _tasks(rows: Iterable[CurrentTasks | TargetTasks]) -> Tasks:
    return {each.subtopology_id: frozenset(each.partitions) for each in rows}
