"""Part of a partition as it is read for a share fetch: its batches, and which of them go to the member."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.drivers.replication.share_partitions import READ_BYTES, LedSharePartition
from ottla.errors import KafkaError
from ottla.model import Offset
from ottla.protocol.records.record_batch import (
    ABORT_KEY,
    CONTROL,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    iterate_records,
    read_batch_header,
)
from ottla.replication.share.aborted import ReadBatch
from ottla.replication.share.acquisition import Acquired
from ottla.storage.segments.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from ottla.replication.share.marks import Mark

GROWTH: Final = 4

_BATCH = struct.Struct(">qi4xb4xhi16xq")
"""The base offset, length, format, attributes, last offset delta and producer id in the header of a batch."""


class Reading:
    """One partition that is being read for a fetch."""

    __slots__ = ("aborted", "batches", "data", "error", "led", "marks", "offset", "up_to")

    def __init__(self, led: LedSharePartition, offset: Offset) -> None:
        self.led = led
        self.offset = offset
        """Where the share-partition goes on."""
        self.up_to: Offset = -1
        """End of the readable records."""
        self.error: KafkaError | None = None
        self.data = memoryview(b"")
        self.batches: list[ReadBatch] = []
        self.aborted: Sequence[AbortedTransaction] = ()
        self.marks: Sequence[Mark] | None = None
        """What was read in the records themselves, if the group's settings ask for it."""

    @property
    def size(self) -> int:
        """Bytes of the whole batches that were read."""
        return self.batches[-1].position + self.batches[-1].size if self.batches else 0

    def take(self, data: bytes, until: Offset) -> None:
        """Find the batches in `data`, up to the one that has the offset `until`, behind those that are known."""
        position, end = self.size, len(data)
        while end - position >= HEADER_SIZE:
            base_offset, length, magic, attributes, delta, producer_id = _BATCH.unpack_from(data, position)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE or magic != MAGIC:
                read_batch_header(data, position)  # says why
            if position + size > end:
                return
            aborts = False
            if attributes & CONTROL:
                aborts = any(record.key == ABORT_KEY for record in iterate_records(data, position))
            last_offset = base_offset + delta
            self.batches.append(
                ReadBatch(
                    base_offset, last_offset, producer_id, attributes & TRANSACTIONAL != 0, aborts, position, size
                )
            )
            if last_offset >= until:
                return
            position += size


def next_size(batches: list[ReadBatch], size: int, until: Offset) -> int:
    """How many bytes to read, when in `size` of them there were not all offsets up to `until`; 0 at first."""
    if not batches:
        return size * GROWTH
    first, last = batches[0], batches[-1]
    each = (last.position + last.size) / (last.last_offset + 1 - first.base_offset)
    likely = int((until - first.base_offset + 1) * each) + last.size
    return min(max(likely, size + READ_BYTES // GROWTH), size * GROWTH)


def sliced(reading: Reading, acquired: list[Acquired]) -> memoryview:
    """The batches that have what was acquired."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    inside = [each for each in reading.batches if each.last_offset >= first and each.base_offset <= last]
    if not inside:
        return memoryview(b"")
    if len(acquired) > 1 and len(inside) > 2:
        inside = _with_some_of(inside, acquired)
        size = sum(each.size for each in inside)
        if size < inside[-1].position + inside[-1].size - inside[0].position:
            parts = (reading.data[each.position : each.position + each.size] for each in inside)
            return memoryview(b"".join(parts))
    return reading.data[inside[0].position : inside[-1].position + inside[-1].size]


def _with_some_of(batches: list[ReadBatch], acquired: list[Acquired]) -> list[ReadBatch]:
    found, index = [], 0
    for batch in batches:
        while acquired[index].last_offset < batch.base_offset:
            index += 1
        if acquired[index].first_offset <= batch.last_offset:
            found.append(batch)
    return found
