"""Which record of a key is the first that is not done with: the only one that may be delivered where a share group is
ordered by key."""

from __future__ import annotations

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

    def first(self) -> Offset:
        """The first of its records. There is one."""
        return min(self._keys)

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

    def leave_all(self, first: Offset, last: Offset) -> list[Offset]:
        """Remove the records between two offsets, which are done with; returns those that are the first of their keys
        by that."""
        keys, following = self._keys, []
        for offset in range(first, last + 1) if last - first < len(keys) else _between(keys, first, last):
            if offset not in keys:
                continue
            if offset in self._behind or offset in self._before:
                found = self._leave(offset)
                if found >= 0:
                    following.append(found)
            else:
                del self._last[keys.pop(offset)]
        return [offset for offset in following if offset in keys] if following else following

    def _leave(self, offset: Offset) -> Offset:
        """Remove a record of a key that has several. Returns the one behind it if that is the first now, else -1."""
        key = self._keys.pop(offset)
        before, behind = self._before.pop(offset, None), self._behind.pop(offset, None)
        if behind is None:
            assert before is not None
            self._last[key] = before
            del self._behind[before]
        elif before is None:
            del self._before[behind]
            return behind
        else:
            self._behind[before] = behind
            self._before[behind] = before
        return -1


def _between(keys: dict[Offset, int], first: Offset, last: Offset) -> list[Offset]:
    return [offset for offset in keys if first <= offset <= last]
