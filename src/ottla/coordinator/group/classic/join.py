"""JoinGroup: a new member, a known member again, or a static member that comes back under a new id.

KIP-345 (static members), KIP-394 (a new member joins in two steps), KIP-814 (a returning static leader skips its
assignment). The answer waits until the rebalance that it starts or takes part in has everyone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.coordinator.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.coordinator.effects import Token
from ottla.coordinator.group.classic import replies
from ottla.coordinator.group.classic.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, ClassicGroup
from ottla.coordinator.group.classic.member import Member
from ottla.coordinator.group.classic.rebalance import (
    complete_if_all_joined,
    prepare,
    prepare_or_complete,
    refuse_waiters,
)
from ottla.coordinator.group.kinds import kind_of
from ottla.coordinator.group.requests import JoinGroup
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group


def join(state: GroupState, token: Token, request: JoinGroup) -> None:
    error = _refusal(state, request)
    if error is not None:
        state.reply(token, replies.join_error(error, request.member_id))
        return
    group = state.groups.get(request.group_id)
    replaced = None
    if group is not None and not isinstance(group, ClassicGroup):
        if not group.is_empty or not group.keeps_offsets:
            _join_other(state, token, group, request)
            return
        group, replaced = None, group
    if group is None:
        if request.member_id:
            state.reply(token, replies.join_error(ErrorCode.unknown_member_id, request.member_id))
            return
        group = _create(state, request.group_id, replaced)
    if not _has_room(state, group, request.member_id, request.instance_id):
        state.cancel_session(group, request.member_id)
        group.remove(request.member_id)
        state.reply(token, replies.join_error(ErrorCode.group_max_size_reached))
    elif not group.supports(request.protocol_type, request.protocols):
        state.reply(token, replies.join_error(ErrorCode.inconsistent_group_protocol, request.member_id))
    elif not request.member_id:
        _join_new(state, token, group, request)
    elif request.member_id in group.pending_members and request.instance_id is None:
        _add(state, token, group, request, request.member_id)
    else:
        _join_known(state, token, group, request)


def _join_other(state: GroupState, token: Token, group: Group, request: JoinGroup) -> None:
    """Join a group of another kind, which stays what it is."""
    classic = kind_of(group.group_type).classic
    if classic is None:
        state.reply(token, replies.join_error(ErrorCode.inconsistent_group_protocol))
    else:
        classic.join(state, token, group, request)


def _create(state: GroupState, group_id: str, replaced: Group | None) -> ClassicGroup:
    """A new group, in place of an empty one of a newer protocol where there is one; it has the offsets of that."""
    group = state.create(group_id)
    if replaced is None:
        undone, reversals = _undo_creation(state, group), [state.reversal_to(group_id, None)]
        state.write([group.to_record({})], failed=undone, reversals=reversals)
    else:
        state.observe("replaced", group, f"a classic member joins in place of the {replaced.group_type} protocol")
        undo = _undo_creation(state, group, replaced)
        state.cancel_timers_of(replaced)
        records = [*replaced.tombstones(), group.to_record({})]
        reversals = [state.reversal_to(group_id, replaced)]
        state.write_applied(records, lambda: undo(ErrorCode.coordinator_not_available), reversals)
    return group


def _undo_creation(
    state: GroupState, group: ClassicGroup, replaced: Group | None = None
) -> Callable[[ErrorCode], None]:
    """A group whose first record could not be written is not there, unless it has come to a generation meanwhile."""

    def failed(error: ErrorCode) -> None:
        if state.groups.get(group.group_id) is not group or group.generation:
            return
        for member in group.members.values():
            refuse_waiters(state, group, member, error, "")
            state.cancel_session(group, member.member_id)
        for member_id in sorted(group.pending_members):
            state.cancel_session(group, member_id)
        state.cancel_join_timer(group)
        state.become(group, DEAD)
        del state.groups[group.group_id]
        if replaced is not None:
            state.groups[group.group_id] = replaced

    return failed


def _refusal(state: GroupState, request: JoinGroup) -> ErrorCode | None:
    config = state.config
    if not request.group_id:
        return ErrorCode.invalid_group_id
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.invalid_session_timeout
    return None


def _has_room(state: GroupState, group: ClassicGroup, member_id: str, instance_id: str | None) -> bool:
    """In a rebalance the first to join have the places, otherwise the members have them. A static member has its place
    in both, also when it comes back without its member id (KAFKA-20601)."""
    limit = state.config.max_size
    if group.state is EMPTY:
        return True
    member = group.members.get(group.static_members.get(instance_id or "", member_id))
    if group.state is not PREPARING:
        return member is not None or len(group.members) < limit
    if member is not None and (member.is_static or member.awaiting_join is not None):
        return member.awaiting_join is not None or group.awaiting_join_count < limit
    return group.has_fewer_places_taken_than(limit)


def _join_new(state: GroupState, token: Token, group: ClassicGroup, request: JoinGroup) -> None:
    instance_id = request.instance_id
    member_id = state.new_member_id(request.client_id if instance_id is None else instance_id)
    if instance_id is not None and instance_id in group.static_members:
        _replace_static(state, token, group, request, instance_id, member_id)
    elif instance_id is None and request.require_known_member_id:
        group.pending_members.add(member_id)
        state.start_session_of(group, member_id, request.session_timeout_ms)
        state.reply(token, replies.join_error(ErrorCode.member_id_required, member_id))
    else:
        _add(state, token, group, request, member_id)


def _join_known(state: GroupState, token: Token, group: ClassicGroup, request: JoinGroup) -> None:
    member_id = request.member_id
    try:
        member = group.check_member(member_id, request.instance_id)
    except KafkaError as error:
        state.reply(token, replies.join_error(error.code, member_id))
        return
    is_leader = group.leader == member_id
    # In order: that is the member's vote. A request that came before has what the member has.
    unchanged = member.protocols is request.protocols or [*member.protocols.items()] == [*request.protocols.items()]
    if unchanged and (group.state is COMPLETING or (group.state is STABLE and not is_leader)):
        # It may have missed the response: answer it again. A stable group's leader joins in order to rebalance.
        state.reply(token, replies.joined(group, member_id, is_leader))
    elif group.state is EMPTY:
        state.reply(token, replies.join_error(ErrorCode.unknown_member_id, member_id))
    else:
        _update(state, token, group, member, request)
        if group.can_become(PREPARING):
            prepare(state, group, f"{'the leader' if is_leader else 'a member'}, {member_id}, joins again")
        else:
            complete_if_all_joined(state, group)


def _add(state: GroupState, token: Token, group: ClassicGroup, request: JoinGroup, member_id: str) -> None:
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
        is_new=True,
    )
    if group.state is PREPARING and group.previous_state is EMPTY:
        group.new_member_added = True
    group.add(member, token)
    state.start_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    prepare_or_complete(state, group, f"{member_id} joins")


def _update(state: GroupState, token: Token, group: ClassicGroup, member: Member, request: JoinGroup) -> None:
    group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    before = group.set_waiter(member, token)
    if before is not None and before is not token:
        # A retry on another connection; the first request would otherwise wait for ever.
        state.reply(before, replies.join_error(ErrorCode.rebalance_in_progress, member.member_id))


def _replace_static(
    state: GroupState, token: Token, group: ClassicGroup, request: JoinGroup, instance_id: str, member_id: str
) -> None:
    """A static member restarted: its old id is fenced, its partitions stay, and a stable group stays stable."""
    old_member_id = group.static_members[instance_id]
    old_leader = group.leader
    member = group.members[old_member_id]
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    refuse_waiters(state, group, member, ErrorCode.fenced_instance_id, old_member_id)
    state.cancel_session(group, old_member_id)
    group.replace_static(instance_id, member_id)
    _update(state, token, group, member, request)
    state.start_session(group, member)
    if group.state is COMPLETING:
        prepare(state, group, f"the static member {instance_id} rejoined")
        return
    if group.state is not STABLE:
        complete_if_all_joined(state, group)
        return
    if group.select_protocol() != group.protocol_name:
        prepare(state, group, f"the static member {instance_id} rejoined with other protocols")
        return

    def committed() -> None:
        waiter = group.set_waiter(member, None)
        if waiter is None:
            return
        if request.can_skip_assignment:
            is_leader = group.leader == member_id
            response = replies.joined(group, member_id, is_leader, is_leader)
        else:
            # Named as a follower, an old client does not compute an assignment that nobody asked for.
            response = {**replies.joined(group, member_id, False), "leader": old_leader or ""}
        state.reply(waiter, response)

    def failed(error: ErrorCode) -> None:
        if group.static_members.get(instance_id) != member_id:
            return
        refuse_waiters(state, group, member, error, "")
        state.cancel_session(group, member_id)
        group.replace_static(instance_id, old_member_id)
        group.update(member, *before)
        state.start_session(group, member)

    state.write([group.to_record()], committed, failed)
