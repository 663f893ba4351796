"""Records of consumer and streams groups (KIP-848, KIP-1071) as they are made: a decision counts at once, before its
records are committed, so that the next request sees it; answers wait for the commit. What cannot be appended is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.group.kind import Undo
from ottla.coordinator.group.kinds import kind_of, kind_of_record
from ottla.protocol.internal.group_records import GroupRecord

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group
    from ottla.coordinator.group.state import GroupState


def apply(state: GroupState, records: Sequence[GroupRecord]) -> tuple[Undo, tuple[Group, ...]]:
    """Replay the records of a decision on one group; returns what undoes that, and the groups that it has changed."""
    undone: list[Undo] = []
    changed: dict[Group, None] = {}
    for key, value in records:
        kind = kind_of_record(key)
        assert kind.saved is not None
        undone.append(kind.saved(state, key))
        before = state.groups.get(key.group)
        kind.replay(state, key, value)
        for group in (before, state.groups.get(key.group)):
            if group is not None and kind_of(group.group_type).counts_at_once:
                changed[group] = None

    def undo() -> None:
        for each in reversed(undone):
            each()

    return undo, tuple(changed)
