"""How members of a streams group go: they leave, or a timer expires. And the first assignment, after its delay."""

from __future__ import annotations

from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState
from ottla.coordinator.group.streams import timers
from ottla.coordinator.group.streams.group import TARGET, StreamsGroup
from ottla.coordinator.group.streams.member import MemberState, StreamsMember
from ottla.coordinator.group.streams.target import update
from ottla.coordinator.group.streams.timers import INITIAL, REBALANCE, SESSION, start_rebalance, start_session
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import StreamsGroupTargetAssignmentMetadataValue

REASONS = {
    SESSION: "the session of {} expired",
    REBALANCE: "{} did not revoke tasks in time",
}


def fence(state: GroupState, group: StreamsGroup, member: StreamsMember, reason: str) -> None:
    """Remove a member, and begin a new group epoch."""
    epoch = group.metadata_record(
        group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
    )
    records = [*group.removal(member.member_id), epoch]
    if len(group.members) == 1:
        records += emptied(group)
    state.observe("members removed", group, reason)
    # Who cannot be removed now is, when another session is over.
    state.apply(records, lambda: start_session(state, group.group_id, member.member_id))
    timers.cancel_all(state, group, member.member_id)


def emptied(group: StreamsGroup) -> list[GroupRecord]:
    """The target assignment of a group whose last member goes is up to date, for there is nobody to assign to
    (KAFKA-20442). It has no time: the next member does not wait for it."""
    written = StreamsGroupTargetAssignmentMetadataValue(group.epoch + 1, 0)
    return [put(group.key(TARGET), written)]


def expired(state: GroupState, kind: str, group_id: str, member_id: str = "") -> None:
    """A timer is past."""
    group = state.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        return
    if kind == INITIAL:
        _assign_first(state, group)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if kind == REBALANCE and group.fence_epochs.pop(member_id, None) != member.epoch:
        return
    fence(state, group, member, REASONS[kind].format(member_id))


def _assign_first(state: GroupState, group: StreamsGroup) -> None:
    if group.is_empty or group.configured is None or group.epoch <= group.assignment_epoch:
        return
    records: list[GroupRecord] = []
    update(state, group, group.epoch, None, group.configured, group.assignment_configs, records)
    if records:
        state.apply(records)


def on_loaded(state: GroupState, group: StreamsGroup) -> None:
    """Members that were found in the log have a session from now on."""
    for member in group.members.values():
        start_session(state, group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            start_rebalance(state, group, member)
