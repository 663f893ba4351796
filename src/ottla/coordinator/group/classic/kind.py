"""What classic groups do with records, timers and offsets. Requests of their members go to `join.py` and
`membership.py`, which know the classic members of other kinds of groups, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.coordinator.group.classic import offsets
from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.classic.group import DEAD, ClassicGroup
from ottla.coordinator.group.classic.rebalance import (
    join_timer_expired,
    prepare,
    refuse_waiters,
    session_expired,
    sync_timer_expired,
)
from ottla.coordinator.group.kind import Kind, Undo, saved_group
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode
from ottla.protocol.schemas.records import GroupMetadataKey, GroupMetadataValue

_TIMERS: Final[dict[str, Callable[..., None]]] = {
    "session": session_expired,
    "join": join_timer_expired,
    "sync": sync_timer_expired,
}


def _replay(state: GroupState, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
    if value is not None:
        state.groups[key.group] = ClassicGroup.from_record(key.group, value)
    elif isinstance(state.groups.get(key.group), ClassicGroup):  # one of another kind has its name now
        del state.groups[key.group]


def _saved(state: GroupState, key: GroupMetadataKey) -> Undo:
    return saved_group(state, key.group)


def _on_loaded(state: GroupState, group: ClassicGroup) -> None:
    for member in group.members.values():
        state.start_session(group, member)
    if len(group.members) > state.config.max_size:
        prepare(state, group, "there are more members than group.max.size")


def _expired(state: GroupState, kind: str, group_id: str, *member_id: str) -> None:
    group = state.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        _TIMERS[kind](state, group, *member_id)


def _release_waiters(state: GroupState, group: ClassicGroup, error: ErrorCode) -> None:
    for member in group.members.values():
        refuse_waiters(state, group, member, error, member.member_id)


def _unload(state: GroupState, group: ClassicGroup) -> None:
    state.become(group, DEAD)


CLASSIC_KIND: Final = Kind(
    describe=describe,
    replay=_replay,
    saved=_saved,
    counts_at_once=False,
    on_loaded=_on_loaded,
    expired=_expired,
    check_commit=offsets.check_commit,
    check_commit_in_transaction=offsets.check_commit_in_transaction,
    check_fetch=None,  # members are not asked who they are
    unused_since=offsets.unused_since,
    release_waiters=_release_waiters,
    unload=_unload,
)
