"""What the groups of one protocol do, beside classic ones; `kinds.py` finds it by their type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.coordinator.effects import Token
    from ottla.coordinator.group.requests import OffsetCommit
    from ottla.coordinator.group.state import GroupState
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.internal.group_records import Value
    from ottla.protocol.internal.modern_group_records import ModernKey

Undo = Callable[[], None]


class Kind(NamedTuple):
    """What the groups of one protocol do. The group that a function gets is of this kind."""

    heartbeat: Callable[[GroupState, Token, Any], None] | None
    """Decide on the heartbeat of a member; None where more than a shard of groups does. Raises KafkaError."""
    describe: Callable[[GroupState, str], Any]
    """The row of a group in the answer to the Describe request of its protocol. Raises GROUP_ID_NOT_FOUND."""
    replay: Callable[[GroupState, ModernKey, Value | None], None]
    """Apply a record of the log, or of a decision. Raises MalformedRecord."""
    saved: Callable[[GroupState, ModernKey], Undo] | None
    """A function that restores what a record is about to change; None where decisions do not go through `apply`."""
    on_loaded: Callable[[GroupState, Any], None]
    """The log is replayed: start the sessions of a group's members."""
    expired: Callable[..., None]
    """(state, *key of the timer): a timer is past. The group may be of another kind by now, its member gone."""
    check_fetch: Callable[[Any, str | None, int], None]
    """(group, member id, member epoch): whether a member may fetch offsets. Raises KafkaError."""
    check_commit: Callable[[Any, OffsetCommit], None]
    """(group, request): whether the sender may commit offsets. Raises KafkaError."""
    check_commit_in_transaction: Callable[[Any, OffsetCommit, MetadataImage], None]
    """The same in a transaction, of a sender that says who it is."""


def saved_group(state: GroupState, group_id: str) -> Undo:
    """A function that restores the current group."""
    before = state.groups.get(group_id)

    def restore() -> None:
        if before is None:
            state.groups.pop(group_id, None)
        else:
            state.groups[group_id] = before

    return restore
