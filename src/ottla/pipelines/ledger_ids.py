"""The ids that an account knows: the newest in one value, older ones in slots behind Bloom filters.

A call to Spark's state costs as much as some hundred ids do, and what is written is written several times (RocksDB, its
log, checkpoints). So a batch appends its ids to `recent`, which is merged into the slots when it has got long: a batch
reads filters, and writes an id a few times, however many there are. A log-structured merge tree of two levels.
"""

from __future__ import annotations

import math
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

SLOT: Final = "slot INT"
IDS: Final = "ids BINARY"
"""Column of a slot: entries with the digest and the day of each id."""
BLOCK: Final = "block INT"
BITS: Final = "bits BINARY"
"""The filters of some slots."""
SLOT_IDS_MAX: Final = 2048
RECENT_MAX: Final = 512
"""Or more, when there are many: see `save`."""
BLOCK_SLOTS: Final = 16
SLOT_BITS: Final = 16 * SLOT_IDS_MAX
PROBES: Final = 6
"""Bits of an id in the filter; where slots are full, one id in a thousand that is not there seems to be."""
_ENTRY: Final = struct.Struct("<16si")
_WORDS: Final = struct.Struct("<4I")
"""Words of a digest: the first chooses the slot, the next two the bits."""
_ENTRIES: Final = np.dtype([("slot", "<u4"), ("bit", "<u4"), ("step", "<u4"), ("rest", "<u4"), ("day", "<i4")])


class Ids:
    """The ids of one account, for one batch, which keeps `slots` and `recent` after `save`. What is unsaved never
    was.
    """

    def __init__(self, state: MapState, filters: MapState, slots: int, recent: bytes) -> None:
        self.slots, self.recent = slots, recent
        self._state, self._filters = state, filters
        self._recent = _days(recent)
        self._new: list[bytes] = []
        self._old: dict[int, dict[bytes, int]] = {}
        self._bits: dict[int, bytes] = {}

    def known(self, name: str, oldest: int) -> bool:
        """Whether it was added, with that day or a later one."""
        digest = _digest(name)
        day = self._recent.get(digest)
        if (day is None or day < oldest) and self.slots:
            day = self._old_day(digest)
        return day is not None and day >= oldest

    def add(self, name: str, day: int) -> None:
        digest = _digest(name)
        self._recent[digest] = day
        self._new.append(_ENTRY.pack(digest, day))

    def save(self, oldest: int) -> None:
        """Days before `oldest` may be forgotten."""
        self.recent += b"".join(self._new)
        # A longer `recent` is dearer with each batch, a shorter one merged more often; at `even` both cost the same.
        room = self.slots * SLOT_IDS_MAX
        even = math.isqrt(2 * room * len(self._new))
        if len(self.recent) > _ENTRY.size * max(RECENT_MAX, min(even, room // 8)):
            self._merge(oldest)

    def _merge(self, oldest: int) -> None:
        found = np.frombuffer(b"".join([*map(self._slot, range(self.slots)), self.recent]), _ENTRIES)
        found = found[found["day"] >= oldest]
        # A power of two; slots are three quarters full at most, as the average.
        before, self.slots = self.slots, 1 << (len(found) * 4 // 3 // SLOT_IDS_MAX).bit_length()
        self.recent = b""
        numbers = found["slot"] & np.uint32(self.slots - 1)
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=self.slots))[:-1]
        slots = np.split(found[order], ends)
        for number, entries in enumerate(slots):
            self._state.updateValue((number,), (entries.tobytes(),))
        for number in range(self.slots, before):
            self._state.removeKey((number,))
        for first in range(0, self.slots, BLOCK_SLOTS):
            bits = b"".join(map(_filter, slots[first : first + BLOCK_SLOTS]))
            self._filters.updateValue((first // BLOCK_SLOTS,), (bits,))
        for block in range(_blocks(self.slots), _blocks(before)):
            self._filters.removeKey((block,))

    def _old_day(self, digest: bytes) -> int | None:
        """The day of an id in a slot."""
        slot, bit, step, _ = _WORDS.unpack(digest)
        slot &= self.slots - 1
        block, place = divmod(slot, BLOCK_SLOTS)
        if block not in self._bits:
            self._bits[block] = cast("tuple[bytes]", self._filters.getValue((block,)))[0]
        bits, start = self._bits[block], place * SLOT_BITS
        for _ in range(PROBES):
            at = start + bit % SLOT_BITS
            if not bits[at >> 3] >> (at & 7) & 1:
                return None
            bit += step
        if slot not in self._old:
            self._old[slot] = _days(self._slot(slot))
        return self._old[slot].get(digest)

    def _slot(self, number: int) -> bytes:
        return cast("tuple[bytes]", self._state.getValue((number,)))[0]


def _digest(name: str) -> bytes:
    """Long enough that nobody finds two names of one digest: the second one would be taken for the first."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _days(entries: bytes) -> dict[bytes, int]:
    return dict(cast("Any", _ENTRY.iter_unpack(entries)))


def _filter(entries: np.ndarray[Any, Any]) -> bytes:
    """The filter of a slot; `_old_day` probes it."""
    bits = np.zeros(SLOT_BITS, np.bool_)
    bit = entries["bit"].astype(np.uint64)
    for _ in range(PROBES):
        bits[bit % SLOT_BITS] = True
        bit += entries["step"]
    return np.packbits(bits, bitorder="little").tobytes()


def _blocks(slots: int) -> int:
    return -(-slots // BLOCK_SLOTS)
