"""How a classic group moves from one generation to the next.

Empty or Stable -> PreparingRebalance: someone joined, left, changed or timed out; members are asked (by heartbeats)
    to join again, and wait. The first members of an empty group wait for company (group.initial.rebalance.delay.ms).
-> CompletingRebalance: all have joined, or the slowest member's rebalance timeout is over and the others are
    dropped. Everyone learns the generation, the leader also the members.
-> Stable: the leader's assignment is in the log; everyone gets its part.
"""

from __future__ import annotations

from ottla.coordinator.group.classic import replies
from ottla.coordinator.group.classic.group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup
from ottla.coordinator.group.classic.member import Member
from ottla.coordinator.group.classic.replies import assigned, joined
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode

REBALANCING, REBALANCED, EMPTIED = "rebalancing", "rebalanced", "is empty"
"""Events of a group, as `GroupState.observe` gets them."""


def prepare_or_complete(state: GroupState, group: ClassicGroup, reason: str) -> None:
    """After a change of members: start a rebalance, or see whether the running one has all it waits for."""
    if group.can_become(PREPARING):
        prepare(state, group, reason)
    else:
        complete_if_all_joined(state, group)


def prepare(state: GroupState, group: ClassicGroup, reason: str) -> None:
    """Begin a rebalance; `reason` is for the log."""
    state.observe(REBALANCING, group, reason)
    if group.state is COMPLETING:
        reset_assignments(state, group, ErrorCode.rebalance_in_progress)
    group.pending_sync.clear()
    state.cancel_sync_timer(group)
    is_initial = group.state is EMPTY
    state.become(group, PREPARING)
    if is_initial:
        delay = state.config.initial_rebalance_delay_ms
        group.new_member_added = False
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
        state.start_join_timer(group, delay)
    elif group.all_joined:
        complete_join(state, group)
    else:
        state.start_join_timer(group, group.rebalance_timeout_ms)


def complete_if_all_joined(state: GroupState, group: ClassicGroup) -> None:
    """The initial delay is waited out even when all are here."""
    is_initial = group.previous_state is EMPTY
    if group.state is PREPARING and not is_initial and group.all_joined:
        complete_join(state, group)


def join_timer_expired(state: GroupState, group: ClassicGroup) -> None:
    if group.state is not PREPARING:
        return
    delay = min(state.config.initial_rebalance_delay_ms, group.initial_delay_left_ms)
    if group.previous_state is EMPTY and group.new_member_added and delay > 0:
        group.new_member_added = False
        group.initial_delay_left_ms -= delay
        state.start_join_timer(group, delay)
    else:
        complete_join(state, group)


def complete_join(state: GroupState, group: ClassicGroup) -> None:
    """End the joining phase with those who are here. Static members keep their place even if they are not."""
    state.cancel_join_timer(group)
    for member in [*group.members.values()]:
        if member.awaiting_join is None and not member.is_static:
            state.cancel_session(group, member.member_id)
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        state.start_join_timer(group, group.rebalance_timeout_ms)
        return
    group.next_generation(state.now.wall_ms)
    if group.state is EMPTY:
        state.observe(EMPTIED, group, "")
        state.write([group.to_record({})])
        return
    state.observe(REBALANCED, group, "")
    for member in group.members.values():
        answer_join(state, group, member)
        state.start_session(group, member)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    state.start_sync_timer(group)


def answer_join(state: GroupState, group: ClassicGroup, member: Member) -> None:
    waiter = group.set_waiter(member, None)
    if waiter is not None:
        is_leader = group.leader == member.member_id
        state.reply(waiter, joined(group, member.member_id, is_leader))


def refuse_waiters(state: GroupState, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str) -> None:
    """Answer what waits for this member with an error; `member_id` is what a JoinGroup response names."""
    waiter = group.set_waiter(member, None)
    if waiter is not None:
        state.reply(waiter, replies.join_error(error, member_id))
    if member.awaiting_sync is not None:
        state.reply(member.awaiting_sync, replies.sync_error(error))
        member.awaiting_sync = None


def reset_assignments(state: GroupState, group: ClassicGroup, error: ErrorCode) -> None:
    """Clear all assignments; waiting members get the error and join again."""
    for member in group.members.values():
        member.assignment = b""
        if member.awaiting_sync is not None:
            state.reply(member.awaiting_sync, replies.sync_error(error))
            member.awaiting_sync = None
            state.start_session(group, member)


def answer_sync_group(state: GroupState, group: ClassicGroup) -> None:
    """Hand out the assignments of a group that became stable."""
    for member in group.members.values():
        if member.awaiting_sync is not None:
            state.reply(member.awaiting_sync, assigned(group, member.assignment))
            member.awaiting_sync = None
            state.start_session(group, member)


def sync_timer_expired(state: GroupState, group: ClassicGroup) -> None:
    """Members that joined and never asked for their assignment are dropped."""
    if group.state not in (COMPLETING, STABLE) or not group.pending_sync:
        return
    for member_id in sorted(group.pending_sync):
        state.cancel_session(group, member_id)
        group.remove(member_id)
    prepare(state, group, "members did not ask for their assignment")


def session_expired(state: GroupState, group: ClassicGroup, member_id: str) -> None:
    if member_id in group.pending_members:
        group.remove(member_id)
        complete_if_waiting(state, group)
        return
    member = group.members.get(member_id)
    if member is not None and not member.is_alive_by_waiting:
        remove_member(state, group, member)
        if group.state in (STABLE, COMPLETING):
            prepare(state, group, f"the session of {member_id} expired")
        else:
            complete_if_waiting(state, group)


def complete_if_waiting(state: GroupState, group: ClassicGroup) -> None:
    """After someone who was waited for is gone."""
    if group.state is PREPARING and group.all_joined:
        complete_join(state, group)


def remove_member(state: GroupState, group: ClassicGroup, member: Member) -> None:
    refuse_waiters(state, group, member, ErrorCode.unknown_member_id, "")
    state.cancel_session(group, member.member_id)
    group.remove(member.member_id)
