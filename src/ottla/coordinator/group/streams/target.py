"""The target assignment: dealt out by the assignor when the group epoch has passed the one that it was computed for,
but not during the initial delay, nor before `group.streams.assignment.interval.ms` is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinator.effects import Now
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState
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
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.internal.streams_group_records import StreamsGroupTargetAssignmentMetadataValue

STANDBY_REPLICAS = "num.standby.replicas"
"""The name of the setting in the records of a group."""
DELAYED_INITIAL = "Assignment delayed due to the configured initial rebalance delay."
DELAYED_INTERVAL = "Assignment delayed due to the configured assignment interval."


class Target(NamedTuple):
    """Target assignment of a member."""

    epoch: int
    tasks: MemberTasks
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
) -> Target:
    """The target of `member` as it will be (None: nobody asks), with records of a new one for all where the group
    needs it and may have it. `epoch` is what the group will have. Raises UNKNOWN_SERVER_ERROR."""
    if is_initial(state, group.group_id):
        return Target(group.assignment_epoch, NO_TASKS, DELAYED_INITIAL)
    last = Target(group.assignment_epoch, NO_TASKS if member is None else group.target(member.member_id))
    if group.assignment_epoch >= epoch:
        return last
    interval_ms = state.config.of_streams_group(state.image, group.group_id).assignment_interval_ms
    if not _may_compute(group.assignment_timestamp_ms, interval_ms, state.now):
        return last._replace(delayed=DELAYED_INTERVAL)
    members = dict(group.members)
    if member is not None:
        members[member.member_id] = member
    assigned = _assigned(group, members, topology, configs, epoch)
    for member_id in members:
        tasks = assigned.get(member_id, NO_TASKS)
        if group.targets.get(member_id) != tasks:
            records.append(put(group.key(MEMBER_TARGET, member_id), target_value(tasks)))
    written = StreamsGroupTargetAssignmentMetadataValue(epoch, state.now.wall_ms)
    records.append(put(group.key(TARGET), written))
    state.observe("assigned", group, f"for epoch {epoch}")
    return Target(epoch, NO_TASKS if member is None else assigned.get(member.member_id, NO_TASKS))


def _assigned(
    group: StreamsGroup, members: Mapping[str, StreamsMember], topology: ConfiguredTopology,
    configs: Mapping[str, str], epoch: int,
) -> dict[str, MemberTasks]:  # fmt: skip
    """The assignment; empty for all members while topics are missing."""
    if not topology.is_ready or topology.subtopologies is None:
        return {}
    specs = {
        member_id: TaskMember(
            member.process_id, member.instance_id, member.rack_id, member.client_tags, group.target(member_id)
        )
        for member_id, member in members.items()
    }
    sizes = {
        name: SubtopologySize(each.tasks, bool(each.state_changelog_topics))
        for name, each in topology.subtopologies.items()
    }
    try:
        return assign_tasks(specs, sizes, int(configs.get(STANDBY_REPLICAS, 0)))
    except TaskAssignorError as error:
        message = f"Failed to compute a new target assignment for epoch {epoch}: {error}"
        raise KafkaError(ErrorCode.unknown_server_error, message) from error


def _may_compute(last_ms: Millis, interval_ms: Millis, now: Now) -> bool:
    return last_ms == 0 or interval_ms == 0 or now.wall_ms >= last_ms + interval_ms
