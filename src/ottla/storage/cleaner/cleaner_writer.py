"""The files of compacted segments while they are made: `.cleaned`, with indexes, to be swapped in when they are whole.

Written by a thread, which shares nothing with the segments that the log has. Usually a group of segments becomes one;
where compaction makes batches larger (they are recompressed), or offsets are too far apart for one index, it becomes
several (KAFKA-20036, KAFKA-6264).
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.model import NO_TIMESTAMP, Buffer, Millis, Offset
from ottla.protocol.records.record_batch import BatchHeader
from ottla.storage.segments.index_file import RELATIVE_OFFSET_MAX
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.segment import WRITEBACK_STEP_BYTES
from ottla.storage.segments.segment_files import INDEX, LOG, SUFFIXES, TIME_INDEX, TRANSACTION_INDEX, fsync_file
from ottla.storage.segments.segment_list import CLEANED
from ottla.storage.segments.time_index import TimeIndex
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex

SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in Kafka's index are 32-bit numbers with a sign."""


class NewSegment(NamedTuple):
    """A finished segment, as the log has to know it."""

    base_offset: Offset
    size: int
    max_timestamp: Millis
    max_timestamp_offset: Offset


def remove_cleaned(fs: FileSystem, directory: str, base_offsets: list[Offset]) -> None:
    """Remove what an attempt at these segments left. Raises `OSError`."""
    for base_offset in base_offsets:
        for suffix in SUFFIXES:
            try:
                fs.remove(posixpath.join(directory, f"{base_offset:020d}{suffix}{CLEANED}"))
            except FileNotFoundError:
                pass


class CleanedSegment:
    """One segment that grows. Every method raises `OSError`."""

    def __init__(self, fs: FileSystem, directory: str, base_offset: Offset, index_interval_bytes: int) -> None:
        remove_cleaned(fs, directory, [base_offset])
        self._fs = fs
        self._stem = posixpath.join(directory, f"{base_offset:020d}")
        self.base_offset = base_offset
        self._interval = index_interval_bytes
        self._since_index = 0
        self._file = fs.open(self._path(LOG), create=True)
        self._offsets = OffsetIndex(fs, self._path(INDEX), base_offset)
        self._times = TimeIndex(fs, self._path(TIME_INDEX), base_offset)
        self._offsets.truncate(0)
        self._times.truncate(0)
        self._transactions = TransactionIndex(fs, self._path(TRANSACTION_INDEX))
        self._largest = NO_TIMESTAMP, base_offset
        self._pending: list[Buffer] = []
        self._written = 0
        self._written_back = 0
        """The kernel was asked to put it on disk, so that the fsync at the end is short."""
        self.size = 0

    def _path(self, suffix: str) -> str:
        return f"{self._stem}{suffix}{CLEANED}"

    def append(self, data: Buffer, last_offset: Offset, max_timestamp: Millis) -> None:
        if max_timestamp > self._largest[0]:
            self._largest = max_timestamp, last_offset
        if self._since_index > self._interval:
            self._offsets.append(last_offset, self.size)
            self._times.maybe_append(*self._largest)
            self._since_index = 0
        self._since_index += len(data)
        self._pending.append(data)
        self.size += len(data)

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        self._transactions.append(transaction)

    def write(self) -> None:
        """Put what was appended into the file."""
        if self._pending:
            self._file.pwrite((b"".join(self._pending),), self._written)
            self._pending.clear()
            if self.size - self._written_back >= WRITEBACK_STEP_BYTES:
                self._fs.start_writeback(self._file, self.size - self._written_back, self._written_back)
                self._written_back = self.size
            self._written = self.size

    def finish(self, mtime_ms: Millis) -> NewSegment:
        """Make it durable; the log file gets the time of the newest original, by which retention may go."""
        self.write()
        if self._largest[0] >= 0:
            self._times.maybe_append(*self._largest)
        self._offsets.write()
        self._times.write()
        self._transactions.write()
        self._file.fsync()
        self._file.close()
        for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
            fsync_file(self._fs, self._path(suffix))
        self._fs.set_mtime_ms(self._path(LOG), mtime_ms)
        return NewSegment(self.base_offset, self.size, *self._largest)

    def close(self) -> None:
        self._file.close()


class CleanedSegments:
    """What a group of segments becomes."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: Offset,
        index_interval_bytes: int,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._interval = index_interval_bytes
        self._bytes_max = segment_bytes_max
        self.segments = [CleanedSegment(fs, directory, base_offset, index_interval_bytes)]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def append(self, data: Buffer, header: BatchHeader, max_timestamp: Millis) -> None:
        """Append a batch, in a new segment if it has no place in the current one. `header` has its offsets."""
        current = self.segments[-1]
        if current.size and (
            current.size + len(data) > self._bytes_max or header.last_offset - current.base_offset > RELATIVE_OFFSET_MAX
        ):
            current.write()
            current = CleanedSegment(self._fs, self._directory, header.base_offset, self._interval)
            self.segments.append(current)
        current.append(data, header.last_offset, max_timestamp)

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        self.segments[-1].note_aborted(transaction)

    def write(self) -> None:
        self.segments[-1].write()

    def finish(self, mtime_ms: Millis) -> list[NewSegment]:
        """Make all of it durable, names included."""
        finished = [segment.finish(mtime_ms) for segment in self.segments]
        self._fs.fsync_dir(self._directory)
        return finished

    def close(self) -> None:
        for segment in self.segments:
            segment.close()

    def discard(self) -> None:
        """Remove the files again."""
        self.close()
        remove_cleaned(self._fs, self._directory, [segment.base_offset for segment in self.segments])
