"""Groups as they are committed, while later decisions count already.

Kafka's coordinator keeps its state in structures with a version for each offset, and describes and lists groups as of
the last committed one (KIP-848, `SnapshotRegistry`). Here a pending write knows how its changes are undone; that is
done on copies of what the groups have, for as long as somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.coordinator.effects import Reversal
from ottla.coordinator.group.classic.group import ClassicGroup

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group
    from ottla.coordinator.group.state import GroupState

T = TypeVar("T")


def as_committed(state: GroupState, newest_first: Iterable[Reversal], look: Callable[[], T]) -> T:
    """What `look` returns while the changes are undone; afterwards all is as before."""
    current: dict[str, Group | None] = {}
    attributes: dict[Group, dict[str, Any]] = {}
    try:
        for group_id, groups, undo in newest_first:
            current.setdefault(group_id, state.groups.get(group_id))
            for group in groups:
                if group not in attributes:
                    attributes[group] = group.__dict__
                    group.__dict__ = {name: _copied(value) for name, value in group.__dict__.items()}
            undo()
        for group_id in current:
            if group_id not in state.groups and state.offsets.of_group(group_id):  # committed before anybody joined
                state.groups[group_id] = ClassicGroup(group_id, state.now.wall_ms)
        return look()
    finally:
        for group, own in attributes.items():
            group.__dict__ = own
        for group_id, found in current.items():
            if found is None:
                state.groups.pop(group_id, None)
            else:
                state.groups[group_id] = found


def _copied(value: Any) -> Any:
    """A copy of a container and of the containers in it; members, targets and the like are never changed in place."""
    if isinstance(value, dict):
        copy = value.copy()  # a Counter stays one
        for key, each in value.items():
            if isinstance(each, dict | set):
                copy[key] = each.copy()
        return copy
    if isinstance(value, set | list):
        return value.copy()
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(_copied, value))
    return value
