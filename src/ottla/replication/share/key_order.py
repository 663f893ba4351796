"""Which record of a key is the first that is not done with: the only one that may be delivered where a share group is
ordered by key."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.model import Offset


class KeyOrder:
    """The records with keys of a share-partition's window, those of one key in a row."""

    __slots__ = ("_before", "_behind", "_keys", "_last")

    def __init__(self) -> None:
        self._keys: dict[Offset, int] = {}
        self._last: dict[int, Offset] = {}
        """The last record of each key."""
        self._behind: dict[Offset, Offset] = {}
        self._before: dict[Offset, Offset] = {}
        """Neighbours of one key. **Invariant**: only records of keys that have several."""

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Offset]:
        return iter([*self._keys])

    def enter(self, offset: Offset, key: int) -> bool:
        """Add a record behind those of its key; returns whether it is the first."""
        before = self._last.get(key)
        self._last[key] = offset
        self._keys[offset] = key
        if before is None:
            return True
        self._behind[before] = offset
        self._before[offset] = before
        return False

    def leave(self, offset: Offset) -> Offset | None:
        """Remove a record that is done with; returns the record that is the first of the key by that."""
        key = self._keys.pop(offset, None)
        if key is None:
            return None
        before, behind = self._before.pop(offset, None), self._behind.pop(offset, None)
        if behind is None:
            if before is None:
                del self._last[key]
            else:
                self._last[key] = before
                del self._behind[before]
            return None
        if before is None:
            del self._before[behind]
            return behind
        self._behind[before] = behind
        self._before[behind] = before
        return None
