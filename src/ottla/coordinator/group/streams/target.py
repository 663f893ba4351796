"""The target assignment: dealt out by the assignor when the group epoch has passed the one that it was computed for,
but not during the initial delay, nor before `group.streams.assignment.interval.ms` is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinator.group.kind import ASSIGNED
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState, assignment_is_due
from ottla.coordinator.group.streams.assignor import (
    MemberTasks,
    SubtopologySize,
    TaskAssignorError,
    TaskMember,
    assign_tasks,
)
from ottla.coordinator.group.streams.group import MEMBER_TARGET, TARGET, StreamsGroup
from ottla.coordinator.group.streams.member import NO_TASKS, StreamsMember, target_value
from ottla.coordinator.group.streams.timers import is_initial
from ottla.coordinator.group.streams.topology import ConfiguredTopology
from ottla.coordinator.group.streams.warmups import NOTHING_REPORTED
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import StreamsGroupTargetAssignmentMetadataValue

STANDBY_REPLICAS, TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
"""Names of settings in the records of a group."""
DELAYED_INITIAL = "Assignment delayed due to the configured initial rebalance delay."
DELAYED_INTERVAL = "Assignment delayed due to the configured assignment interval."


class Target(NamedTuple):
    """Target assignment of a member."""

    epoch: int
    tasks: Mapping[str, MemberTasks]
    """Target assignments by member."""
    delayed: str | None = None
    """Why there is no newer one."""


def update(
    state: GroupState,
    group: StreamsGroup,
    epoch: int,
    member: StreamsMember | None,
    topology: ConfiguredTopology,
    configs: Mapping[str, str],
    records: list[GroupRecord],
    *,
    replaced: str | None = None,
    only_refined: bool = False,
) -> Target:
    """The target with `member` as it will be (None: nobody asks), with records of a new one where the group needs it
    and may have it. `epoch` is what the group will have; `replaced` the id of the static member in whose place it
    comes. The target stays, and gets the epoch, where the group has a new one `only_refined` (`warmups.py`). Raises
    UNKNOWN_SERVER_ERROR."""
    if is_initial(state, group.group_id):
        return Target(group.assignment_epoch, {}, DELAYED_INITIAL)
    targets = group.targets
    if replaced is not None and member is not None:
        targets = {name: tasks for name, tasks in targets.items() if name != replaced}
        targets[member.member_id] = group.target(replaced)
    last = Target(group.assignment_epoch, targets)
    if group.assignment_epoch >= epoch:
        return last
    if only_refined and group.assignment_epoch >= group.epoch:
        records.append(_metadata(group, epoch, group.assignment_timestamp_ms))
        return last._replace(epoch=epoch)
    interval_ms = state.config.of_streams_group(state.image, group.group_id).assignment_interval_ms
    if not assignment_is_due(group.assignment_timestamp_ms, interval_ms, state.now.wall_ms):
        return last._replace(delayed=DELAYED_INTERVAL)
    members = with_member(group, member, replaced)
    assigned = _assigned(group, members, topology, configs, epoch)
    for member_id in members:
        tasks = assigned.get(member_id, NO_TASKS)
        if targets.get(member_id) != tasks:
            records.append(put(group.key(MEMBER_TARGET, member_id), target_value(tasks)))
    records.append(_metadata(group, epoch, state.now.wall_ms))
    state.observe(ASSIGNED, group, f"for epoch {epoch}")
    return Target(epoch, assigned)


def with_member(
    group: StreamsGroup, member: StreamsMember | None, replaced: str | None = None
) -> dict[str, StreamsMember]:
    """The members with one as it will be."""
    members = {name: each for name, each in group.members.items() if name != replaced}
    if member is not None:
        members[member.member_id] = member
    return members


def _metadata(group: StreamsGroup, epoch: int, timestamp_ms: Millis) -> GroupRecord:
    return put(group.key(TARGET), StreamsGroupTargetAssignmentMetadataValue(epoch, timestamp_ms))


def _assigned(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    topology: ConfiguredTopology,
    configs: Mapping[str, str],
    epoch: int,
) -> dict[str, MemberTasks]:
    """The assignment; empty for all members while topics are missing."""
    if not topology.is_ready or topology.subtopologies is None:
        return {}
    specs = {
        member_id: TaskMember(
            member.process_id,
            member.instance_id,
            member.rack_id,
            member.client_tags,
            _held(member),
            group.reports.get(member_id, NOTHING_REPORTED).offsets or {},
        )
        for member_id, member in members.items()
    }
    sizes = {
        name: SubtopologySize(each.tasks, bool(each.state_changelog_topics))
        for name, each in topology.subtopologies.items()
    }
    try:
        tags = configs.get(TAGS)
        return assign_tasks(specs, sizes, int(configs.get(STANDBY_REPLICAS, 0)), tags.split(",") if tags else ())
    except TaskAssignorError as error:
        message = f"Failed to compute a new target assignment for epoch {epoch}: {error}"
        raise KafkaError(ErrorCode.unknown_server_error, message) from error


def _held(member: StreamsMember) -> MemberTasks:
    """The tasks that a member has: a target that it never reached says nothing of its state (Kafka 4.4)."""
    active = {name: frozenset(epochs) for name, epochs in member.assigned.active.items()}
    return MemberTasks(active, member.assigned.standby, member.assigned.warmup)
