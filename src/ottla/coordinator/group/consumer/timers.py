"""The timers of members: their session, and how long they may take to give partitions up.

Keys are (kind, group id, member id). Those of members of the classic protocol have also to join and to sync in time.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.state import GroupState
from ottla.model import Millis

SESSION: Final = "consumer session"
REBALANCE: Final = "consumer rebalance"
JOIN: Final = "consumer join"
SYNC: Final = "consumer sync"
KINDS: Final = (SESSION, REBALANCE, JOIN, SYNC)


def start_session(state: GroupState, group_id: str, member: ConsumerMember) -> None:
    """The member is alive: it has a session to send the next heartbeat. One of the classic protocol chose its own."""
    timeout_ms = state.consumer_config(group_id).session_timeout_ms
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    _schedule(state, SESSION, group_id, member.member_id, timeout_ms)


def start_rebalance(state: GroupState, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The member has its rebalance timeout to leave the epoch that it is in."""
    group.fence_epochs[member.member_id] = member.epoch
    _schedule(state, REBALANCE, group.group_id, member.member_id, member.rebalance_timeout_ms)


def start_join(state: GroupState, group_id: str, member: ConsumerMember) -> None:
    """A classic member that was asked to join again has its rebalance timeout to do so, from the first time on."""
    if (JOIN, group_id, member.member_id) not in state.timers:
        _schedule(state, JOIN, group_id, member.member_id, member.rebalance_timeout_ms)


def start_sync(state: GroupState, group_id: str, member: ConsumerMember) -> None:
    _schedule(state, SYNC, group_id, member.member_id, member.rebalance_timeout_ms)


def cancel_rebalance(state: GroupState, group_id: str, member_id: str) -> None:
    state.timers.cancel((REBALANCE, group_id, member_id))


def cancel(state: GroupState, kind: str, group_id: str, member_id: str) -> None:
    state.timers.cancel((kind, group_id, member_id))


def cancel_all(state: GroupState, group: ConsumerGroup, member_id: str) -> None:
    group.fence_epochs.pop(member_id, None)
    for kind in KINDS:
        state.timers.cancel((kind, group.group_id, member_id))


def undo(state: GroupState, group_id: str, member_id: str, before: ConsumerMember | None) -> None:
    """The records of a member could not be written. Where it is not there without them, it has no timers; the member
    that was there `before` it, under another id or protocol, has its session."""
    group = state.groups.get(group_id)
    members = group.members if isinstance(group, ConsumerGroup) else {}
    if member_id not in members:
        for kind in KINDS:
            state.timers.cancel((kind, group_id, member_id))
    if before is not None and before.member_id in members:
        start_session(state, group_id, before)


def _schedule(state: GroupState, kind: str, group_id: str, member_id: str, delay_ms: Millis) -> None:
    state.timers.schedule((kind, group_id, member_id), state.now.timer_ms + delay_ms)
