"""What the groups of one protocol do; `kinds.py` finds it by their type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.coordinator.effects import Token
    from ottla.coordinator.group.requests import JoinGroup, Leaving, OffsetCommit, SyncGroup
    from ottla.coordinator.group.state import GroupState
    from ottla.errors import ErrorCode
    from ottla.model import Millis

Undo = Callable[[], None]

EACH_SINCE_ITS_COMMIT: Final = -1

REBALANCES: Final = "rebalances"
"""The event (`GroupState.observe`) of a consumer, share or streams group whose epoch grows."""
ASSIGNED: Final = "assigned"
"""The event of such a group that has a target assignment for its epoch."""


def unused_since_commit(group: Any) -> Millis:
    """Each offset expires by itself, whatever the group does."""
    return EACH_SINCE_ITS_COMMIT


class ClassicRequests(NamedTuple):
    """Requests of the classic protocol to a group of another kind that may have such members."""

    join: Callable[[GroupState, Token, Any, JoinGroup], None]
    """Always replies; the group has members."""
    sync: Callable[[GroupState, Token, Any, SyncGroup], None]
    """Always replies."""
    heartbeat: Callable[[GroupState, Any, str, str | None, int], None]
    """(state, group, member id, instance id, generation). Raises KafkaError."""
    leave: Callable[[GroupState, Token, Any, Sequence[Leaving]], None]
    """Always replies."""


class Kind(NamedTuple):
    """What the groups of one protocol do. The group that a function gets is of this kind."""

    describe: Callable[[GroupState, str], Any]
    """The row of a group in the answer to the Describe request of its protocol. Raises GROUP_ID_NOT_FOUND, but for
    classic groups."""
    replay: Callable[[GroupState, Any, Any], None]
    """(state, key, value): apply a record of the log, or of a decision. Raises MalformedRecord."""
    saved: Callable[[GroupState, Any], Undo] | None
    """(state, key): a function that restores what a record is about to change; None where decisions do not go through
    `apply`."""
    counts_at_once: bool
    """Whether records of a decision count before they are committed."""
    on_loaded: Callable[[GroupState, Any], None]
    """The log is replayed: start the sessions of a group's members."""
    expired: Callable[..., None]
    """(state, *key of the timer): a timer is past. The group may be of another kind by now, its member gone."""
    check_commit: Callable[[GroupState, Any, OffsetCommit], None]
    """(state, group, request): whether the sender may commit offsets. Raises KafkaError."""
    check_commit_in_transaction: Callable[[GroupState, Any, OffsetCommit], None]
    """The same in a transaction, of a sender that says who it is."""
    check_fetch: Callable[[Any, str | None, int], None] | None
    """(group, member id, member epoch): whether a member may fetch offsets. Raises KafkaError. None: everybody may."""
    unused_since: Callable[[Any], Millis | None] = unused_since_commit
    """Since when nobody has used the offsets of topics that no member reads, and they expire; None: they stay."""
    heartbeat: Callable[[GroupState, Token, Any], None] | None = None
    """Decide on the heartbeat of a member; None for classic groups, whose heartbeat waits for nothing. Raises
    KafkaError."""
    classic: ClassicRequests | None = None
    """None: members of the classic protocol are unknown, or all that there are."""
    release_waiters: Callable[[GroupState, Any, ErrorCode], None] | None = None
    """Answer all that wait in a rebalance with an error; None: nobody waits."""
    unload: Callable[[GroupState, Any], None] | None = None
    """Another node coordinates the group from now on."""


def saved_group(state: GroupState, group_id: str) -> Undo:
    """A function that restores the current group."""
    before = state.groups.get(group_id)

    def restore() -> None:
        if before is None:
            state.groups.pop(group_id, None)
        else:
            state.groups[group_id] = before

    return restore
