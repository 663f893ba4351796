"""The `.timeindex` file: from a timestamp to an offset (Kafka's `TimeIndex`).

Entries of twelve bytes, big endian: the largest timestamp in the segment up to then, and the last offset, relative to
the base offset, of the first batch that has it. The last entry of a closed segment is the segment's maximum.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from itertools import chain

from ottla.filesystem import FileSystem
from ottla.model import NO_TIMESTAMP, Millis, Offset
from ottla.storage.segments.index_file import IndexFile
from ottla.storage.segments.offset_index import increasing_prefix

_ENTRY = struct.Struct(">qI")


class TimeIndex(IndexFile):
    """Timestamps and offsets, both strictly increasing."""

    __slots__ = ("offsets", "timestamps")
    ENTRY_SIZE = 12

    def __init__(self, fs: FileSystem, path: str, base_offset: Offset) -> None:
        super().__init__(fs, path, base_offset)
        self.timestamps = array("q")
        self.offsets = array("I")  # relative to the base offset

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp_ms: Millis, offset: Offset) -> None:
        """Note the largest timestamp so far and its offset, unless it is not larger than the last noted one."""
        if timestamp_ms <= (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            return
        self.timestamps.append(timestamp_ms)
        self.offsets.append(offset - self.base_offset)
        self._write_if_many()

    @property
    def last_entry(self) -> tuple[Millis, Offset]:
        """The largest timestamp and its offset; (-1, base offset) when there is none."""
        if not self.timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def offset_before(self, timestamp_ms: Millis) -> Offset:
        """An offset at or below the first record whose timestamp is at least `timestamp_ms`.

        Every record up to the entry's offset has a timestamp of at most the entry's, so an entry that is smaller than
        the one asked for may be skipped, an equal one may not.
        """
        found = bisect_right(self.timestamps, timestamp_ms - 1)
        return self.base_offset + self.offsets[found - 1] if found else self.base_offset

    def count_below(self, offset: Offset) -> int:
        """How many entries speak of offsets below `offset`."""
        return bisect_right(self.offsets, offset - self.base_offset - 1) if offset > self.base_offset else 0

    def _decode(self, data: bytes) -> None:
        whole = len(data) - len(data) % self.ENTRY_SIZE
        numbers = list(chain.from_iterable(_ENTRY.iter_unpack(data[:whole])))
        timestamps, offsets = array("q", numbers[0::2]), array("I", numbers[1::2])
        good = min(increasing_prefix(timestamps), increasing_prefix(offsets))
        self.timestamps, self.offsets = timestamps[:good], offsets[:good]

    def _encode(self, first: int) -> bytes:
        pack = _ENTRY.pack
        return b"".join(map(pack, self.timestamps[first:], self.offsets[first:]))

    def _cut(self, count: int) -> None:
        del self.timestamps[count:]
        del self.offsets[count:]
