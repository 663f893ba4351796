"""The `.index` file: from an offset to the position of its batch (Kafka's `OffsetIndex`).

Entries of eight bytes, big endian: the last offset of a batch relative to the segment's base offset, and the position
in the log file at which that batch begins. There is about one per `index.interval.bytes`.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.filesystem import FileSystem
from ottla.model import Offset
from ottla.storage.segments.index_file import IndexFile

_SWAP = sys.byteorder == "little"


def increasing_prefix(values: array[int]) -> int:
    """How many of `values` from the start on increase strictly."""
    follows = map(lt, values, islice(values, 1, None))
    return next((number + 1 for number, good in enumerate(follows) if not good), len(values))


def _first_above(values: array[int], limit: int) -> int:
    """As `bisect_right` finds it in an increasing array, without a number as an object for each look."""
    if cython.compiled:
        words = values.data.as_uints  # type: ignore[attr-defined]
        low, high = 0, len(values)
        while low < high:
            middle = (low + high) >> 1
            if words[middle] <= limit:
                low = middle + 1
            else:
                high = middle
        return low
    else:
        return bisect_right(values, limit)


class OffsetIndex(IndexFile):
    """Offsets and positions, both strictly increasing."""

    __slots__ = ("offsets", "positions")
    ENTRY_SIZE = 8

    def __init__(self, fs: FileSystem, path: str, base_offset: Offset) -> None:
        super().__init__(fs, path, base_offset)
        self.offsets = array("I")  # relative to the base offset
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, last_offset: Offset, position: int) -> None:
        """Note that the batch ending at `last_offset` begins at `position`."""
        self.offsets.append(last_offset - self.base_offset)
        self.positions.append(position)
        self._write_if_many()

    def position_before(self, offset: Offset) -> int:
        """The position of a batch boundary at or before the batch that holds `offset`."""
        relative = offset - self.base_offset
        if relative < 0:
            return 0
        found = bisect_right(self.offsets, relative)
        return self.positions[found - 1] if found else 0

    def around(self, offset: Offset) -> tuple[int, int, Offset]:
        """`position_before`, with the position of the next entry and the last offset of its batch; -1 without one."""
        found = _first_above(self.offsets, offset - self.base_offset) if offset >= self.base_offset else 0
        position = self.positions[found - 1] if found else 0
        if found == len(self.positions):
            return position, -1, -1
        return position, self.positions[found], self.base_offset + self.offsets[found]

    def boundary_at_or_before(self, position: int) -> int:
        """The largest known batch boundary not above `position`."""
        found = _first_above(self.positions, position)
        return self.positions[found - 1] if found else 0

    def offset_from(self, position: int) -> Offset:
        """The last offset of the first known batch that begins at `position` or behind it; -1 without one."""
        found = bisect_left(self.positions, position)
        return self.base_offset + self.offsets[found] if found < len(self.positions) else -1

    def count_below(self, offset: Offset) -> int:
        """How many entries speak of batches that end below `offset`."""
        return bisect_right(self.offsets, offset - self.base_offset - 1) if offset > self.base_offset else 0

    def _decode(self, data: bytes) -> None:
        words = array("I", data[: len(data) - len(data) % 8])
        if _SWAP:
            words.byteswap()
        offsets, positions = words[0::2], words[1::2]
        good = min(increasing_prefix(offsets), increasing_prefix(positions))
        self.offsets, self.positions = offsets[:good], positions[:good]

    def _encode(self, first: int) -> bytes:
        words = array("I", bytes(8 * (len(self.offsets) - first)))
        words[0::2] = self.offsets[first:]
        words[1::2] = self.positions[first:]
        if _SWAP:
            words.byteswap()
        return words.tobytes()

    def _cut(self, count: int) -> None:
        del self.offsets[count:]
        del self.positions[count:]
