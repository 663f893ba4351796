"""The steps of one cleaning, each short enough for a thread to do between two looks at whether to go on.

Kafka's `Cleaner.buildOffsetMap` and `cleanSegments`. The event loop takes from the log what a step needs (open files,
sizes, aborted transactions, producers) and the steps touch nothing else of it: they read sealed segments and write
`.cleaned` files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ottla.filesystem import File, FileSystem
from ottla.model import Offset
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    RECORD_BYTES_MAX,
    BatchHeader,
    CorruptBatch,
    crc_is_valid,
    iterate_batches,
    read_batch_header,
    read_end_marker,
)
from ottla.storage.cleaner.cleaner_filter import BatchFilter, section_of
from ottla.storage.cleaner.cleaner_map import OffsetMap
from ottla.storage.cleaner.cleaner_transactions import CleanedTransactions
from ottla.storage.cleaner.cleaner_writer import CleanedSegments
from ottla.storage.segments.segment_files import SegmentFile
from ottla.storage.segments.transaction_index import AbortedTransaction


@dataclass(slots=True)
class Source:
    """A sealed segment as a step sees it. The handle keeps the file open, whatever happens to the segment."""

    handle: SegmentFile
    base_offset: Offset
    end_offset: Offset
    """Where the next segment begins."""
    size: int
    position: int = 0
    """Everything before it is done."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.size


def read_batches(source: Source, length: int) -> Iterator[tuple[bytes, BatchHeader]]:
    """About `length` bytes of whole batches from the source's position on, which moves; one batch at least.

    A batch that is not what its checksum was made of raises `CorruptBatch`: rewritten, it would have a right one.
    """
    file: File = source.handle.file
    start = source.position
    data = file.pread(min(length, source.size - start), start)
    if len(data) >= HEADER_SIZE:
        size = read_batch_header(data).size
        if size > len(data):
            data = file.pread(min(size, source.size - start), start)
    for at, header in iterate_batches(data):
        batch = data[at : at + header.size]
        if not crc_is_valid(batch, 0, header):
            raise CorruptBatch(f"the batch at position {start + at} of {file.path} has a wrong checksum")
        source.position += header.size
        yield batch, header
    if source.position == start:
        raise CorruptBatch(f"{file.path} has no whole batch at position {start}")


class MapBuilder:
    """Puts the keys of the dirty part into the map, until all are in it or it is full."""

    def __init__(
        self,
        offsets: OffsetMap,
        start: Offset,
        aborted: Sequence[AbortedTransaction],
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self._offsets = offsets
        self._record_bytes_max = record_bytes_max
        self._start = start
        self._transactions = CleanedTransactions()
        self._transactions.add_aborted(aborted)
        self.full = False
        self.bytes_read = 0

    def step(self, source: Source, length: int) -> int:
        """Take the next batches of a segment; returns the bytes read. Raises `KafkaError`, `OSError`."""
        before = source.position
        if not source.is_done:
            for batch, header in read_batches(source, length):
                if not self._take(batch, header):
                    self.full = True
                    break
        if source.is_done and not self.full:
            self._offsets.latest = max(self._offsets.latest, source.end_offset - 1)
        self.bytes_read += source.position - before
        return source.position - before

    def _take(self, batch: bytes, header: BatchHeader) -> bool:
        if header.is_control:
            self._transactions.on_control(header, read_end_marker(batch) if header.count else None)
        elif not self._transactions.on_batch(header) and header.last_offset >= self._start and header.count:
            section = section_of(batch, header, self._record_bytes_max)
            if not self._offsets.put(section, header.count, header.base_offset, self._start):
                return False
        if header.last_offset >= self._start:
            self._offsets.latest = max(self._offsets.latest, header.last_offset)
        return True


class GroupCleaner:
    """Rewrites a group of segments into new ones."""

    def __init__(
        self, fs: FileSystem, directory: str, batches: BatchFilter, base_offset: Offset, interval: int
    ) -> None:
        self._batches = batches
        self.output = CleanedSegments(fs, directory, base_offset, interval)
        self.unchanged = True
        """Every batch so far stays as it is."""
        self.bytes_read = 0

    def step(self, source: Source, length: int) -> int:
        """Take the next batches of a segment; returns the bytes read and written. Raises `KafkaError`, `OSError`."""
        if source.is_done:
            return 0
        before, size_before = source.position, self.output.size
        for batch, header in read_batches(source, length):
            cleaned = self._batches.clean(batch, header)
            if cleaned is None:
                self.unchanged = False
                continue
            self.unchanged = self.unchanged and cleaned.data is batch
            self.output.append(cleaned.data, header, cleaned.max_timestamp)
            if cleaned.aborted is not None:
                self.output.note_aborted(cleaned.aborted)
        self.output.write()
        self.bytes_read += source.position - before
        return source.position - before + self.output.size - size_before
