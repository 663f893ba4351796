"""Part of a partition as it is read for a share fetch: its batches, and which of them go to the member."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.drivers.replication.share_partitions import READ_BYTES, LedSharePartition
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Offset
from ottla.protocol.records.record_batch import (
    ABORT_KEY,
    CONTROL,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    LongWork,
    iterate_records,
    read_batch_header,
)
from ottla.replication.replica_log import Slice
from ottla.replication.share.aborted import OffsetRange, ReadBatch, aborted_ranges
from ottla.replication.share.acquisition import Acquired
from ottla.replication.share.ranges import count_records, has_shorter
from ottla.storage.log.log import ColdRead
from ottla.storage.segments.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from ottla.replication.share.config import Mark
    from ottla.replication.share.selection import Selection

Work = Callable[[], object]
"""For a thread."""

LIKELY_BYTES_MAX: Final = 262_144
"""As many bytes as the last fetch took, and a batch, are read first of a partition, between `READ_BYTES` and this; more
if that does not cover what may be acquired."""

GROWTH: Final = 4

_BATCH = struct.Struct(">qi4xb4xhi16xq")
"""The base offset, length, format, attributes, last offset delta and producer id in the header of a batch."""


class Reading:
    """One partition that is being read for a fetch."""

    __slots__ = ("_part", "aborted", "batches", "data", "error", "led", "marks", "parts", "read", "up_to")

    def __init__(self, led: LedSharePartition, parts: list[OffsetRange]) -> None:
        self.led = led
        self.parts = parts
        """What is to be read, in order; at least one."""
        self.read: list[OffsetRange] = []
        """What was read of it, from where each read began. **Invariant**: none begins right behind another."""
        self.up_to: Offset = -1
        """End of the readable records."""
        self.error: KafkaError | None = None
        self.data = memoryview(b"")
        self.batches: list[ReadBatch] = []
        self.aborted: list[OffsetRange] = []
        """What belongs to aborted transactions, where the group reads only what is committed."""
        self._part: PartRead | None = None
        self.marks: Sequence[Mark] | None = None
        """What was read in the records themselves, if the group's settings ask for it."""

    @property
    def offset(self) -> Offset:
        """Where the share-partition goes on."""
        return self.parts[0].first_offset

    def take(self, part: PartRead) -> None:
        """Add what was read of a part behind what there is."""
        self._part = part
        if not part.batches:
            return
        batch = part.batches[-1]
        last = batch.last_offset
        if self.read and self.read[-1].last_offset + 1 == part.offset:
            self.read[-1] = OffsetRange(self.read[-1].first_offset, last)
        else:
            self.read.append(OffsetRange(part.offset, last))
        if not self.batches:
            self.data, self.batches = part.data, part.batches
            return
        at = len(self.data)
        self.data = memoryview(b"".join((self.data, part.data)))
        for batch in part.batches:
            batch.position += at
        self.batches += part.batches

    def leave_out(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Leave out transactions that were aborted of the part that was read last. Each part is looked at by itself: in
        what lies between two parts a transaction may end."""
        if aborted and self._part is not None:
            transactions = [(each.producer_id, each.first_offset) for each in aborted]
            self.aborted += aborted_ranges(self._part.batches, transactions)


class PartRead:
    """The batches of one place of the log."""

    __slots__ = ("batches", "data", "offset")

    def __init__(self, offset: Offset) -> None:
        self.offset = offset
        self.data = memoryview(b"")
        self.batches: list[ReadBatch] = []

    def end(self) -> int:
        """Bytes of the whole batches that were read."""
        if not self.batches:
            return 0
        last = self.batches[-1]
        return last.position + last.size

    def take(self, data: bytes, until: Offset) -> None:
        """Find the batches in `data`, up to the one that has the offset `until`, behind those that are known."""
        position, end = self.end(), len(data)
        while end - position >= HEADER_SIZE:
            base_offset, length, magic, attributes, delta, producer_id = _BATCH.unpack_from(data, position)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE or magic != MAGIC:
                read_batch_header(data, position)  # says why
            if position + size > end:
                return
            aborts = attributes & CONTROL != 0 and _has_abort_marker(data, position)
            last_offset = base_offset + delta
            self.batches.append(
                ReadBatch(
                    base_offset, last_offset, producer_id, attributes & TRANSACTIONAL != 0, aborts, position, size
                )
            )
            if last_offset >= until:
                return
            position += size


def _has_abort_marker(data: bytes, position: int) -> bool:
    return any(record.key == ABORT_KEY for record in iterate_records(data, position))


def next_size(batches: list[ReadBatch], size: int, until: Offset) -> int:
    """How many bytes to read, when in `size` of them there were not all offsets up to `until`; 0 at first."""
    if not batches:
        return size * GROWTH
    first, last = batches[0], batches[-1]
    each = (last.position + last.size) / (last.last_offset + 1 - first.base_offset)
    likely = int((until - first.base_offset + 1) * each) + last.size
    return min(max(likely, size + READ_BYTES // GROWTH), size * GROWTH)


def in_order(found: list[Acquired], more: list[Acquired]) -> list[Acquired]:
    """What a fetch has acquired, by offset, as clients walk it beside the records. A further look may acquire a record
    from before, whose back-off ended meanwhile or whose key became free."""
    is_behind = not found or found[-1][1] < more[0][0]
    return found + more if is_behind else sorted(found + more)


def sliced(reading: Reading, acquired: list[Acquired]) -> memoryview:
    """The batches that have what was acquired, which is in order."""
    first, last = acquired[0][0], acquired[-1][1]
    inside = [each for each in reading.batches if each.last_offset >= first and each.base_offset <= last]
    if not inside:
        return memoryview(b"")
    # A batch may be left out only if all of its records lie between what was acquired.
    left = last - first + 1 - count_records(acquired) if len(inside) > 2 else 0
    if left and has_shorter(inside, left):
        inside = _with_some_of(inside, acquired)
    first_inside, last_inside = inside[0], inside[-1]
    start, end = first_inside.position, last_inside.position + last_inside.size
    if left:
        size = 0
        for each in inside:
            size += each.size
        if size < end - start:
            parts = [reading.data[each.position : each.position + each.size] for each in inside]
            return memoryview(b"".join(parts))
    return reading.data[start:end]


def _with_some_of(batches: list[ReadBatch], acquired: list[Acquired]) -> list[ReadBatch]:
    found, index = [], 0
    row = acquired[0]
    first, last = row[0], row[1]
    for batch in batches:
        while last < batch.base_offset:
            index += 1
            row = acquired[index]
            first, last = row[0], row[1]
        if first <= batch.last_offset:
            found.append(batch)
    return found


def read_parts(
    reading: Reading, parts: Iterable[OffsetRange], max_bytes: int, committed_only: bool, min_one_batch: bool
) -> Generator[Work, object, None]:
    """Read places of the log behind what was read, up to `max_bytes` in all, and what the group's settings ask of the
    records. Yields what is to be done in a thread, and is sent its result. Raises KafkaError, KAFKA_STORAGE_ERROR where
    the disk does not give them."""
    led = reading.led
    for first, until in parts:
        if reading.read and first <= (end := reading.read[-1].last_offset):
            if until <= end:
                continue
            # Its beginning is in the last batch of the part before, which goes on.
            first = end + 1
        left = max_bytes - len(reading.data)
        try:
            part = yield from _read_part(reading, first, until, left, min_one_batch)
        except OSError as error:
            led.partition.log.health.report(first)
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        if part is None:
            break
        if committed_only:
            reading.leave_out(led.partition.log.aborted_transactions(first, reading.up_to, part))
    reading.marks = None
    if reading.batches and led.core is not None and led.core.selection is not None:
        yield from _read_marks(reading, led.core.selection)


def _read_part(
    reading: Reading, offset: Offset, until: Offset, max_bytes: int, min_one_batch: bool
) -> Generator[Work, object, Slice | None]:
    """Read one place of the log, as far as an offset is in it and there is room. Returns the slice of the log, None
    if there is none."""
    led, found, size = reading.led, PartRead(offset), 0
    part, warm = None, None
    while max_bytes > 0:
        try:
            part = led.partition.log.read(
                offset,
                max_bytes,
                up_to=reading.up_to,
                min_one_batch=min_one_batch and not reading.batches,
                nowait=True,
            )
            break
        except ColdRead as cold:
            warm = cold.warm
        yield warm
    if part is None or led.core is None:
        return None
    batches, data = found.batches, b""
    while size < part.length and (not batches or batches[-1].last_offset < until):
        size = min(part.length, next_size(batches, size, until) or led.likely_bytes)
        read = part.file.pread_nowait(size, part.position)
        if read is None:
            read = yield partial(part.file.pread, size, part.position)
            assert isinstance(read, bytes)
        data = read
        found.take(data, until)
    if batches:
        led.likely_bytes = max(READ_BYTES, min(found.end() + batches[-1].size, LIKELY_BYTES_MAX))
        found.data = memoryview(data)[: found.end()]
        reading.take(found)
    return part


def _read_marks(reading: Reading, selection: Selection) -> Generator[Work, object, None]:
    """Read keys and headers of records that are looked at for the first time."""
    settings, scan_from = selection.config.mark_settings, selection.scan_from
    if settings is None or reading.read[-1].last_offset < scan_from:
        return
    from ottla.replication.share.marks import Marks, read_marks

    ahead = [*selection.ahead]
    marks, work = None, None
    try:
        marks = read_marks(reading.data, reading.batches, max(scan_from, selection.marked_until + 1), settings)
    except LongWork as long:
        work = long.do
    if work is not None:
        read = yield work
        assert isinstance(read, Marks)
        marks = read
    assert marks is not None
    reading.marks = ahead + marks.records
    reading.led.metrics.bad_delivery_times += marks.bad_times
