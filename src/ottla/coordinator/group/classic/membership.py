"""SyncGroup, Heartbeat and LeaveGroup of members that have joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.effects import Token
from ottla.coordinator.group.classic import replies
from ottla.coordinator.group.classic.group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup
from ottla.coordinator.group.classic.member import Member
from ottla.coordinator.group.classic.rebalance import (
    answer_sync_group,
    complete_if_all_joined,
    prepare,
    remove_member,
    reset_assignments,
)
from ottla.coordinator.group.kinds import kind_of
from ottla.coordinator.group.requests import LeaveGroup, Leaving, SyncGroup
from ottla.coordinator.group.state import GroupState
from ottla.errors import NONE, ErrorCode, KafkaError

REBALANCE_IN_PROGRESS: Final = ErrorCode.rebalance_in_progress
"""For compiled code, which reads a name fifty times as fast as a member of an enum."""


def sync(state: GroupState, token: Token, request: SyncGroup) -> None:
    """The leader brings the assignment; everyone waits for its part until that is in the log."""
    found = state.groups.get(request.group_id)
    if found is not None and not isinstance(found, ClassicGroup):
        classic = kind_of(found.group_type).classic
        if classic is None:
            state.reply(token, replies.sync_error(ErrorCode.unknown_member_id))
        else:
            classic.sync(state, token, found, request)
        return
    group = found
    try:
        member = _checked_for_sync(group, request)
    except KafkaError as error:
        state.reply(token, replies.sync_error(error.code))
        return
    assert group is not None
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        state.cancel_sync_timer(group)
    if group.state is STABLE:
        state.reply(token, replies.assigned(group, member.assignment))
        return
    if member.awaiting_sync is not None:
        state.reply(member.awaiting_sync, replies.sync_error(ErrorCode.rebalance_in_progress))
    member.awaiting_sync = token
    if group.leader == member.member_id:
        _store(state, group, request.assignments)


def _checked_for_sync(group: ClassicGroup | None, request: SyncGroup) -> Member:
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    if group is None or group.state is EMPTY:
        raise KafkaError(ErrorCode.unknown_member_id)
    member = group.check_member(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise KafkaError(ErrorCode.illegal_generation)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    if group.state is PREPARING:
        raise KafkaError(ErrorCode.rebalance_in_progress)
    return member


def _differ(asked: str | None, actual: str | None) -> bool:
    """Whether both are known and not the same."""
    return asked is not None and actual is not None and asked != actual


def _store(state: GroupState, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
    """Write the assignment. Should another rebalance have begun by the time it is written, it no longer counts."""
    generation = group.generation

    def committed() -> None:
        if _is_current(group, generation):
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            state.become(group, STABLE)
            answer_sync_group(state, group)

    def failed(error: ErrorCode) -> None:
        if _is_current(group, generation):
            reset_assignments(state, group, error)
            prepare(state, group, "the assignment could not be written")

    state.write([group.to_record(assignments)], committed, failed)


def _is_current(group: ClassicGroup, generation: int) -> bool:
    return group.state is COMPLETING and group.generation == generation


def heartbeat(state: GroupState, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """What the member is told: REBALANCE_IN_PROGRESS asks it to join again. That and ILLEGAL_GENERATION are returned,
    because every member gets one of them in a rebalance. Raises KafkaError for other errors."""
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    found = state.groups.get(group_id)
    if found is None:
        raise KafkaError(ErrorCode.unknown_member_id)
    if not isinstance(found, ClassicGroup):
        classic = kind_of(found.group_type).classic
        if classic is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Group {group_id} not found.")
        classic.heartbeat(state, found, member_id, instance_id, generation)
        return NONE
    group = found
    member = group.check_member(member_id, instance_id)
    if generation != group.generation:
        return ErrorCode.illegal_generation
    state.start_session(group, member)
    return REBALANCE_IN_PROGRESS if group.state is PREPARING else NONE


def leave(state: GroupState, token: Token, request: LeaveGroup) -> None:
    """Members go at once; the rest of the group rebalances. Raises KafkaError."""
    group_id, members = request
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    group = state.groups.get(group_id)
    if group is not None and not isinstance(group, ClassicGroup):
        classic = kind_of(group.group_type).classic
        if classic is not None:
            classic.leave(state, token, group, members)
            return
        group = None  # which has no classic members: each is unknown
    results = []
    for leaving in members:
        error = ErrorCode.unknown_member_id if group is None else _leave(state, group, leaving)
        results.append({"member_id": leaving.member_id, "group_instance_id": leaving.instance_id, "error_code": error})
    if group is not None and any(result["error_code"] is NONE for result in results):
        if group.state in (STABLE, COMPLETING):
            prepare(state, group, "members left")
        elif group.state is PREPARING:
            complete_if_all_joined(state, group)
    state.reply(token, {"error_code": NONE, "members": results})


def _leave(state: GroupState, group: ClassicGroup, leaving: Leaving) -> ErrorCode:
    member_id, instance_id = leaving
    if not member_id:
        if instance_id is None or instance_id not in group.static_members:
            return ErrorCode.unknown_member_id
        member_id = group.static_members[instance_id]
    elif member_id in group.pending_members:
        state.cancel_session(group, member_id)
        group.remove(member_id)
        return NONE
    else:
        try:
            group.check_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
    remove_member(state, group, group.members[member_id])
    return NONE
