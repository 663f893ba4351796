"""Bounds what the segments of a node keep open and in memory: log files and loaded indexes.

A segment opens its file and loads its indexes when they are first needed and gives them back when too many others have
theirs; a node may have far more segments than descriptors. Least recently used, by a second chance for those
that were used since the last look, because an append should not pay for bookkeeping.
"""

from __future__ import annotations

from typing import Protocol

OPEN_FILES_MAX = 4096
"""Most servers give a process far more; a node with fewer descriptors passes its own limit."""

INDEX_BYTES_MAX = 64 * 1024 * 1024
"""Indexes of segments that are being read, enough for 32 full ones of 1 GiB."""


class CacheMember(Protocol):
    recently_used: bool

    def memory_bytes(self) -> int: ...
    def release(self) -> None:
        """Close the file and drop the indexes; they come back when needed."""
        ...


class SegmentCache:
    """Members hold an open file, loaded indexes, or both."""

    def __init__(self, *, open_files_max: int = OPEN_FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._open_files_max = max(open_files_max, 1)
        self._index_bytes_max = index_bytes_max
        self._members: dict[CacheMember, None] = {}

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: CacheMember) -> None:
        """Call it whenever a member has opened or loaded something; it may release others, never this one."""
        self._members[member] = None
        member.recently_used = True
        if len(self._members) > self._open_files_max:
            self._release(len(self._members) - self._open_files_max, member)

    def discard(self, member: CacheMember) -> None:
        self._members.pop(member, None)

    def shrink(self, keep: CacheMember) -> None:
        """The system has no more descriptors: release half."""
        self._open_files_max = max(1, len(self._members) // 2)
        self._release(len(self._members) - self._open_files_max, keep)

    def trim_indexes(self) -> None:
        """Release members until the indexes in memory are within their limit. Called now and then, not per read."""
        total = sum(member.memory_bytes() for member in self._members)
        while total > self._index_bytes_max and len(self._members) > 1:
            oldest = next(iter(self._members))
            total -= oldest.memory_bytes()
            del self._members[oldest]
            oldest.release()

    def _release(self, count: int, keep: CacheMember) -> None:
        chances = 2 * len(self._members)
        while count > 0 and chances > 0:
            chances -= 1
            oldest = next(iter(self._members))
            del self._members[oldest]
            if oldest is keep or oldest.recently_used:
                oldest.recently_used = False
                self._members[oldest] = None
            else:
                oldest.release()
                count -= 1
