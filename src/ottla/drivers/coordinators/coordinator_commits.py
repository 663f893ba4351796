"""Commits that arrive in the same turn of the loop, on their way into one batch of `__consumer_offsets`.

Kafka's coordinator calls it linger (`group.coordinator.append.linger.ms`); its default, -1, takes what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.model import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Millis
from ottla.protocol.offset_block import RECORDS_MAX, OffsetBlock
from ottla.protocol.records.compression import compress
from ottla.protocol.records.record_batch import MAGIC, BatchHeader, assemble

if TYPE_CHECKING:
    from ottla.drivers.ports import Waiter

BATCH_BYTES_MAX: Final = 262_144
"""A quarter of what max.message.bytes allows by default."""

CommitEntry: TypeAlias = "tuple[OffsetBlock, Waiter]"


class Commits:
    """The collected commits of one shard, in their order. All have one timestamp."""

    __slots__ = ("_records", "_size", "count", "entries", "now_ms")

    def __init__(self) -> None:
        self.entries: list[CommitEntry] = []
        self.now_ms: Millis = 0
        self._records: list[bytes] = []
        self.count = 0
        """Offsets in all of them."""
        self._size = 0

    def has_room(self, count: int) -> bool:
        """Whether `count` more records may go into the same batch; the first commit always may."""
        return not self.entries or (self.count + count <= RECORDS_MAX and self._size < BATCH_BYTES_MAX)

    def add(self, block: OffsetBlock, waiter: Waiter) -> None:
        records = block.shape.records(block.rows, self.now_ms, self.count)
        self._records.append(records)
        self._size += len(records)
        self.count += block.shape.count
        self.entries.append((block, waiter))

    def batch(self, codec: int) -> bytearray:
        """All of them as one record batch."""
        header = BatchHeader(
            0,
            0,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            codec,
            self.count - 1,
            self.now_ms,
            self.now_ms,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            0,
            self.count,
        )
        section = b"".join(self._records)
        return assemble(header, section if codec == 0 else compress(codec, section, None))

    def take(self) -> list[CommitEntry]:
        """Hand over the commits; none are left."""
        entries, self.entries = self.entries, []
        self._records = []
        self.count = self._size = 0
        return entries
