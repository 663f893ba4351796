"""Records of consumer and streams groups (KIP-848, KIP-1071) as they are made: a decision counts at once, before its
records are committed, so that the next request sees it; answers wait for the commit. What cannot be appended is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import ClassicGroup
from ottla.protocol.internal.group_records import GroupMetadataKey, GroupRecord, Value
from ottla.protocol.internal.modern_group_records import STREAMS, ModernKey, types_of

if TYPE_CHECKING:
    from ottla.coordinator.group.state import GroupState

Undo = Callable[[], None]


def replay(state: GroupState, key: ModernKey, value: Value | None) -> None:
    """Apply a record of the log, or of a decision."""
    if types_of(key) is STREAMS:
        from ottla.coordinator.group.streams.replay import replay as replay_streams

        replay_streams(state, key, value)
    else:
        from ottla.coordinator.group.consumer.replay import replay as replay_consumer

        replay_consumer(state, key, value)


def apply(state: GroupState, records: Sequence[GroupRecord]) -> Undo:
    """Replay the records of a decision; returns what undoes that."""
    undone: list[Undo] = []
    for key, value in records:
        if isinstance(key, ModernKey):
            undone.append(_saved(state, key))
            replay(state, key, value)
        else:
            assert isinstance(key, GroupMetadataKey) and value is None
            undone.append(saved_group(state, key.group))
            if isinstance(state.groups.get(key.group), ClassicGroup):
                del state.groups[key.group]

    def undo() -> None:
        for each in reversed(undone):
            each()

    return undo


def _saved(state: GroupState, key: ModernKey) -> Undo:
    if types_of(key) is STREAMS:
        from ottla.coordinator.group.streams.replay import saved as saved_streams

        return saved_streams(state, key)
    from ottla.coordinator.group.consumer.replay import saved as saved_consumer

    return saved_consumer(state, key)


def saved_group(state: GroupState, group_id: str) -> Undo:
    """A function that restores the current group."""
    before = state.groups.get(group_id)

    def restore() -> None:
        if before is None:
            state.groups.pop(group_id, None)
        else:
            state.groups[group_id] = before

    return restore
