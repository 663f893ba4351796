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

    def __init__(self, key: int) -> None:
        self.key = key
        self.before: Offset = NONE
        self.behind: Offset = NONE
        """The records of the key beside it."""


class KeyOrder:
    """The records with keys of a share-partition's window, those of one key in a row."""

    __slots__ = ("_keys", "_last")

    def __init__(self) -> None:
        self._keys: dict[Offset, int | Neighbour] = {}
        """**Invariant**: a `Neighbour` for each record of a key that has several; it may stay one when they are gone,
        with nothing beside it."""
        self._last: dict[int, Offset] = {}
        """The last record of each key."""

    def __len__(self) -> int:
        return len(self._keys)

    def first(self) -> Offset:
        """The first of its records. There is one."""
        return min(self._keys)

    def enter(self, offset: Offset, key: int) -> bool:
        """Add a record behind those of its key; returns whether it is the first."""
        before = self._last.get(key)
        self._last[key] = offset
        if before is None:
            self._keys[offset] = key
            return True
        known = self._keys[before]
        if not isinstance(known, Neighbour):
            known = self._keys[before] = Neighbour(key)
        known.behind = offset
        added = Neighbour(key)
        added.before = before
        self._keys[offset] = added
        return False

    def leave_all(self, first: Offset, last: Offset) -> list[Offset]:
        """Remove the records between two offsets, which are done with; returns those that are the first of their keys
        by that."""
        keys: dict[Offset, int | Neighbour] = self._keys
        following: list[Offset] = []
        if last - first >= len(keys):
            for offset in [offset for offset in keys if first <= offset <= last]:
                self._leave_one(offset, following)
        else:
            for offset in range(first, last + 1):
                self._leave_one(offset, following)
        return [offset for offset in following if offset in keys] if following else following

    def _leave_one(self, offset: Offset, following: list[Offset]) -> None:
        key = self._keys.pop(offset, None)
        if key is None:
            return
        if isinstance(key, Neighbour):
            found = self._leave(key)
            if found >= 0:
                following.append(found)
        else:
            del self._last[key]

    def _leave(self, left: Neighbour) -> Offset:
        """Remove a record of a key that had several. Returns the one behind it if that is the first now, else -1."""
        if left.behind < 0:
            if left.before < 0:
                del self._last[left.key]
            else:
                self._last[left.key] = left.before
                self._neighbour(left.before).behind = NONE
            return -1
        self._neighbour(left.behind).before = left.before
        if left.before < 0:
            return left.behind
        self._neighbour(left.before).behind = left.behind
        return -1

    def _neighbour(self, offset: Offset) -> Neighbour:
        found = self._keys[offset]
        assert isinstance(found, Neighbour)
        return found
