"""Which record of a key is the first that is not done with: the only one that may be delivered where a share group is
ordered by key."""

from __future__ import annotations

from typing import Final

from ottla.model import Offset

NONE: Final = -1
"""No record."""


class Neighbour:
    """One record of a key that has several. A plain record has only its key: looking for neighbours of each record
    would cost a fetch more than all that waits."""

    __slots__ = ("before", "behind", "key")

    key: int
    before: Offset
    behind: Offset
    """The records of the key beside it."""


def _neighbour(key: int, before: Offset) -> Neighbour:
    """The same as a constructor, whose call takes longer in compiled code."""
    made = Neighbour.__new__(Neighbour)
    made.key, made.before, made.behind = key, before, NONE
    return made


class KeyOrder:
    """The records with keys of a share-partition's window, those of one key in a row."""

    __slots__ = ("_alone", "_last", "_several")

    def __init__(self) -> None:
        self._alone: dict[Offset, int] = {}
        """The keys of records that are the only ones of them. What waits for long is not here: old offsets in a dict
        of new ones would collide with them."""
        self._several: dict[Offset, Neighbour] = {}
        """The records of keys that have several, or had: a record may stay here when it is alone."""
        self._last: dict[int, Offset] = {}
        """The last record of each key."""

    def __len__(self) -> int:
        return len(self._alone) + len(self._several)

    def first(self) -> Offset:
        """The first of its records. There is one."""
        return min(min(offsets) for offsets in (self._alone, self._several) if offsets)

    def enter(self, offset: Offset, key: int) -> bool:
        """Add a record behind those of its key; returns whether it is the first."""
        before = self._last.get(key)
        self._last[key] = offset
        if before is None:
            self._alone[offset] = key
            return True
        last = self._several.get(before)
        if last is None:
            del self._alone[before]
            last = self._several[before] = _neighbour(key, NONE)
        last.behind = offset
        self._several[offset] = _neighbour(key, before)
        return False

    def leave_all(self, first: Offset, last: Offset) -> list[Offset]:
        """Remove the records between two offsets, which are done with; returns those that are the first of their keys
        by that."""
        following: list[Offset] = []
        if last - first >= len(self._alone) + len(self._several):
            for offset in [offset for offset in self._alone if first <= offset <= last]:
                self._leave_one(offset, following)
            for offset in [offset for offset in self._several if first <= offset <= last]:
                self._leave_one(offset, following)
        else:
            for offset in range(first, last + 1):
                self._leave_one(offset, following)
        return [offset for offset in following if offset in self._several] if following else following

    def _leave_one(self, offset: Offset, following: list[Offset]) -> None:
        key = self._alone.pop(offset, None)
        if key is not None:
            del self._last[key]
            return
        if self._several:
            left = self._several.pop(offset, None)
            if left is not None:
                found = self._leave(left)
                if found >= 0:
                    following.append(found)

    def _leave(self, left: Neighbour) -> Offset:
        """Remove a record of a key that had several. Returns the one behind it if that is the first now, else -1."""
        if left.behind < 0:
            if left.before < 0:
                del self._last[left.key]
            else:
                self._last[left.key] = left.before
                other = self._several[left.before]
                other.behind = NONE
            return -1
        other = self._several[left.behind]
        other.before = left.before
        if left.before < 0:
            return left.behind
        other = self._several[left.before]
        other.behind = left.behind
        return -1
