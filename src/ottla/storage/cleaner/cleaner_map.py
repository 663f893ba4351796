"""The offsets of keys during one cleaning: a table of fixed size outside Python's heap (Kafka's `SkimpyOffsetMap`).

It keeps a hash of 128 bits for a key and not the key. An entry has 24 bytes as in Kafka, so that
`log.cleaner.dedupe.buffer.size` holds as many keys here as there. Kafka hashes with MD5; here the hash is keyed with a
secret, so that nobody can make keys that take each other's place.
"""

from __future__ import annotations

import mmap
import random as random_module

from ottla.model import Offset
from ottla.protocol.records import _compaction

SLOT_BYTES = 24
_SLOTS_MIN = 16
_ROOM = 2
"""Slots for each offset of a short range: more would only cost memory, fewer mean longer searches."""


class OffsetMap:
    """Close it after use: its memory goes back to the system at once."""

    def __init__(self, buffer_bytes: int, load_factor: float, offsets: int, random: random_module.Random) -> None:
        """Room for what `buffer_bytes` holds at most; for a range of few offsets less memory is taken."""
        limit = max(buffer_bytes // SLOT_BYTES, 2)
        self.slots = min(limit, max(offsets * _ROOM, _SLOTS_MIN))
        self.used_max = min(max(int(limit * load_factor), 1), self.slots)
        self.used = 0
        self.latest: Offset = -1
        """Every key up to here is in the map."""
        self._memory = mmap.mmap(-1, self.slots * SLOT_BYTES)
        self._table = memoryview(self._memory).cast("Q")
        self._seeds = random.getrandbits(64), random.getrandbits(64)

    @property
    def utilization(self) -> float:
        return self.used / self.slots

    def put(self, section: bytes, count: int, base_offset: Offset, start: Offset) -> bool:
        """Note the keys of a batch's records from offset `start` on; False if there was no room for all of them."""
        self.used, last, full = _compaction.map_keys(
            self._table, *self._seeds, self.used, self.used_max, section, 0, len(section), count, base_offset, start
        )
        self.latest = max(self.latest, last)
        return not full

    def retain(
        self, keep: bytearray, section: bytes, count: int, base_offset: Offset, base_timestamp: int, *, tombstones: bool
    ) -> tuple[int, int, bool, int, int]:
        """Mark the records that are the latest of their key, without tombstones unless they are to stay.

        Returns (how many stay, records without key, whether a tombstone stays, first and greatest timestamp of those).
        """
        return _compaction.retain(
            self._table,
            *self._seeds,
            self.latest,
            not tombstones,
            keep,
            section,
            0,
            len(section),
            count,
            base_offset,
            base_timestamp,
        )

    def close(self) -> None:
        self._table.release()
        self._memory.close()
