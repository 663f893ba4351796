"""The timers of a streams group: of members their session, and how long they may take to give tasks up; of a group the
delay of its first assignment. Keys are (kind, group id, member id), without the last for the group's."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.state import GroupState
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.model import Millis

SESSION: Final = "streams session"
REBALANCE: Final = "streams rebalance"
INITIAL: Final = "streams initial"


def start_session(state: GroupState, group_id: str, member_id: str) -> None:
    """The member is alive: it has a session to send the next heartbeat."""
    timeout_ms = state.config.of_streams_group(state.image, group_id).session_timeout_ms
    state.timers.schedule((SESSION, group_id, member_id), state.now.timer_ms + timeout_ms)


def start_rebalance(state: GroupState, group: StreamsGroup, member: StreamsMember) -> None:
    """The member has its rebalance timeout to leave the epoch that it is in."""
    group.fence_epochs[member.member_id] = member.epoch
    key = REBALANCE, group.group_id, member.member_id
    state.timers.schedule(key, state.now.timer_ms + member.rebalance_timeout_ms)


def cancel_rebalance(state: GroupState, group: StreamsGroup, member_id: str) -> None:
    group.fence_epochs.pop(member_id, None)
    state.timers.cancel((REBALANCE, group.group_id, member_id))


def cancel_all(state: GroupState, group: StreamsGroup, member_id: str) -> None:
    cancel_rebalance(state, group, member_id)
    state.timers.cancel((SESSION, group.group_id, member_id))


def undo(state: GroupState, group_id: str, member_id: str) -> None:
    """The records of a member could not be written. Where it, or the group, is not there without them, it has no
    timers."""
    group = state.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        state.timers.cancel((INITIAL, group_id))
    elif member_id in group.members:
        return
    state.timers.cancel((SESSION, group_id, member_id))
    state.timers.cancel((REBALANCE, group_id, member_id))


def start_initial(state: GroupState, group_id: str, delay_ms: Millis) -> None:
    """The first assignment waits for more members, from the first member on."""
    if not is_initial(state, group_id):
        state.timers.schedule((INITIAL, group_id), state.now.timer_ms + delay_ms)


def is_initial(state: GroupState, group_id: str) -> bool:
    return (INITIAL, group_id) in state.timers
