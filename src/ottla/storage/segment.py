"""One segment of a log: its `.log` file with the indexes beside it (Kafka's `LogSegment`).

The file opens and the indexes load when first needed. A reader gets a `LogSlice`, which keeps the file open for as
long as it lives, whatever happens to the segment meanwhile.
"""

from __future__ import annotations

import errno
import posixpath
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import File, FileSystem
from ottla.model import NO_TIMESTAMP, Buffer, LeaderEpoch, Millis, Offset, ProducerId
from ottla.protocol.record_batch import BatchHeader, iterate_records, read_batch_header
from ottla.storage.index_file import RELATIVE_OFFSET_MAX, IndexFile
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.segment_cache import SegmentCache
from ottla.storage.time_index import TimeIndex
from ottla.storage.transaction_index import TransactionIndex

LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
DELETED = ".deleted"

SCAN_BYTES = 4096
"""What a look-up reads at once: about the distance of two index entries."""

INDEX_CHUNK_BYTES = 16 * 1024

WRITEBACK_STEP_BYTES = 8 << 20
"""After so many bytes the kernel is asked to begin writing them to disk: a fraction of what it would collect itself."""

_HEADER_BYTES = 61
_BATCH_BYTES_MIN = _HEADER_BYTES - 12
_POSITION = struct.Struct(">qi11xi8xqq")
"""Of a batch header: base offset, length, last offset delta, largest timestamp, producer id."""


def fsync_file(fs: FileSystem, path: str) -> None:
    """Fsync a file by its name, if it is there. Raises `OSError`."""
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return
    try:
        file.fsync()
    finally:
        file.close()


class ColdRead(Exception):
    """Bytes that a look-up needs are not in the page cache. Call `warm` in a thread, then try again."""

    def __init__(self, warm: Callable[[], object]) -> None:
        super().__init__("not in the page cache")
        self.warm = warm


class SegmentFile:
    """An open file that closes when the last one who holds it lets it go."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()


class LogSlice:
    """A range of a segment's file: whole batches from `position` on.

    `first_offset` is the base offset of the first batch, which may lie below the offset that was asked for.
    """

    __slots__ = ("_handle", "file", "first_offset", "length", "position", "segment")

    def __init__(self, handle: SegmentFile, position: int, length: int, first_offset: Offset, segment: Segment) -> None:
        self._handle = handle
        self.file = handle.file
        self.position = position
        self.length = length
        self.first_offset = first_offset
        self.segment = segment

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes, from disk if need be. Raises `OSError`."""
        return self.file.pread(self.length, self.position)

    def read_nowait(self) -> bytes | None:
        """The bytes, or None where they are not wholly in the page cache."""
        return self.file.pread_nowait(self.length, self.position)


class FoundBatch(NamedTuple):
    """Where a batch is in a log file, and as much of its header as a look-up needs."""

    position: int
    base_offset: Offset
    size: int
    last_offset: Offset
    max_timestamp: Millis
    producer_id: ProducerId


class Segment:
    """A log file and its indexes. Only the last segment of a log takes appends."""

    __slots__ = (
        "_cache",
        "_fs",
        "_fsynced_index_changes",
        "_handle",
        "_hint",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "first_timestamp",
        "index_changes",
        "index_interval_bytes",
        "jitter_ms",
        "recently_used",
        "size",
    )

    def __init__(
        self,
        fs: FileSystem,
        cache: SegmentCache,
        directory: str,
        base_offset: Offset,
        *,
        size: int,
        index_interval_bytes: int,
        jitter_ms: Millis,
        now_ms: Millis,
    ) -> None:
        self._fs = fs
        self._cache = cache
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.index_interval_bytes = index_interval_bytes
        self.jitter_ms = jitter_ms
        self.created_ms = now_ms
        self.bytes_since_index = 0
        self.index_changes = 0
        """Counts what an fsync has to put on disk besides the log file."""
        self._fsynced_index_changes = 0
        self.recently_used = False
        self.first_timestamp: Millis | None = None
        """Largest timestamp of the first batch, from which `segment.ms` counts; None until looked at."""
        self._hint = (-1, 0, 0)
        """First offset, position and size of the last batch appended: consumers at the tail ask for just that."""
        self._max_timestamp: Millis | None = None
        self._max_timestamp_offset: Offset = base_offset
        self._handle: SegmentFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        cache: SegmentCache,
        directory: str,
        base_offset: Offset,
        *,
        index_interval_bytes: int,
        jitter_ms: Millis,
        now_ms: Millis,
    ) -> Segment:
        """An empty segment with empty files, replacing leftovers of the same name. Raises `OSError`."""
        segment = cls(
            fs,
            cache,
            directory,
            base_offset,
            size=0,
            index_interval_bytes=index_interval_bytes,
            jitter_ms=jitter_ms,
            now_ms=now_ms,
        )
        for suffix in (INDEX, TIME_INDEX, LOG):
            file = fs.open(segment.path(suffix), create=True)
            if file.size():
                file.truncate(0)
            file.close()
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size} bytes, {self.directory})"

    def path(self, suffix: str) -> str:
        return posixpath.join(self.directory, f"{self.base_offset:020d}{suffix}")

    # What is open and loaded

    def open(self) -> SegmentFile:
        """The open log file. Raises `OSError`."""
        self.recently_used = True
        handle = self._handle
        if handle is None:
            path = self.path(LOG)
            try:
                file = self._fs.open(path)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                self._cache.shrink(self)
                file = self._fs.open(path)
            handle = self._handle = SegmentFile(file)
            self._cache.add(self)
        return handle

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = self._offset_index = OffsetIndex(self._fs, self.path(INDEX), self.base_offset)
            self._load(index)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex(self._fs, self.path(TIME_INDEX), self.base_offset)
            self._load(index)
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._transaction_index
        if index is None:
            index = self._transaction_index = TransactionIndex(self._fs, self.path(TRANSACTION_INDEX))
            self._cache.add(self)
        return index

    def _load(self, index: IndexFile) -> None:
        try:
            if self.size:
                index.load(self._read_index(index.path))
        except FileNotFoundError:
            pass
        except OSError:
            self._offset_index = self._time_index = None
            raise
        self._cache.add(self)

    def _read_index(self, path: str) -> bytes:
        """An index file up to the zeros that Kafka fills the ten megabytes of an open one with."""
        file = self._fs.open(path, read_only=True)
        try:
            size, chunk_bytes, parts, position = file.size(), INDEX_CHUNK_BYTES, [], 0
            while position < size:
                chunk = file.pread(min(chunk_bytes, size - position), position)
                if not chunk or chunk == bytes(len(chunk)):
                    break
                parts.append(chunk)
                position += len(chunk)
                chunk_bytes *= 2
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            file.close()

    def index_sizes(self) -> tuple[int, int]:
        """Bytes of the offset index and of the time index. Raises `OSError`."""
        return self._file_size(INDEX), self._file_size(TIME_INDEX)

    def _file_size(self, suffix: str) -> int:
        try:
            return self._fs.size(self.path(suffix))
        except FileNotFoundError:
            return 0

    def memory_bytes(self) -> int:
        return sum(index.memory_bytes for index in (self._offset_index, self._time_index) if index is not None)

    def release(self) -> None:
        """Close the file and drop the indexes from memory, if what they hold is in their files."""
        self._handle = None
        try:
            self.write_indexes()
        except OSError:
            return
        self._offset_index = self._time_index = self._transaction_index = None

    def write_indexes(self) -> None:
        """Put pending index entries into the files. Raises `OSError`."""
        if self._offset_index is not None:
            self._offset_index.write()
        if self._time_index is not None:
            self._time_index.write()

    def fsync_work(self, *, with_indexes: bool) -> tuple[Callable[[], None], Callable[[], None]]:
        """How to make the segment durable as it is now: what to do, in a thread if need be, and what to call after.

        Raises `OSError`, as the work does.
        """
        handle = self.open()
        changes = self.index_changes
        paths: list[str] = []
        if with_indexes and self._fsynced_index_changes != changes:
            self.write_indexes()
            paths = [self.path(suffix) for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX)]
        fs = self._fs

        def work() -> None:
            handle.file.fsync()
            for path in paths:
                fsync_file(fs, path)  # there may be no transaction index, or the segment was deleted meanwhile

        def done() -> None:
            if paths:
                self._fsynced_index_changes = max(self._fsynced_index_changes, changes)

        return work, done

    # Appending

    def append(self, buffer: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Append whole batches with their headers. On `OSError` the file may have a partial write behind `size`."""
        position = self.size
        handle = self._handle
        if handle is None:
            handle = self.open()
        self.recently_used = True
        end = position + handle.file.pwrite((buffer,), position)
        if position // WRITEBACK_STEP_BYTES != end // WRITEBACK_STEP_BYTES:
            start = position - position % WRITEBACK_STEP_BYTES
            self._fs.start_writeback(handle.file, end - start, start)
        for header in headers:
            base_offset = header.base_offset
            last_offset = base_offset + header.last_offset_delta
            self.note_batch(base_offset, last_offset, header.batch_length + 12, header.max_timestamp)

    def note_batch(self, base_offset: Offset, last_offset: Offset, size: int, max_timestamp: Millis) -> None:
        """Update size, indexes and largest timestamp for a batch that is next in the file."""
        position = self.size
        largest = self._max_timestamp
        if largest is None:
            largest = self.max_timestamp
        if max_timestamp > largest:
            self._max_timestamp = largest = max_timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(largest, self._max_timestamp_offset)
            self.index_changes += 1
            self.bytes_since_index = size
        else:
            self.bytes_since_index += size
        self._hint = (base_offset, position, size)
        self.size = position + size

    def should_roll(
        self, size: int, last_offset: Offset, max_timestamp: Millis, now_ms: Millis, limits: RollLimits
    ) -> bool:
        """Whether batches of `size` bytes up to `last_offset` have to go to a new segment."""
        if self.size + size > limits.segment_bytes:
            return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size:
            first = self.first_timestamp
            if first is None:
                first = self.first_batch_timestamp()
            waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if waited > limits.segment_ms - self.jitter_ms:
                return True
        index = self._offset_index
        if index is None:
            index = self.offset_index
        if len(index.offsets) >= limits.offset_entries_max:
            return True
        times = self._time_index
        if times is None:
            times = self.time_index
        return len(times.timestamps) >= limits.time_entries_max

    def first_batch_timestamp(self) -> Millis:
        """The largest timestamp of the first batch, -1 without one. Raises `OSError`, `KafkaError`."""
        if self.first_timestamp is None:
            self.first_timestamp = self._read_first_timestamp()
        return self.first_timestamp

    def _read_first_timestamp(self) -> Millis:
        first = next(self.batches(0), None)
        return NO_TIMESTAMP if first is None else first.max_timestamp

    def close_to_appends(self) -> None:
        """Note the largest timestamp in the time index, which retention and look-ups go by. Raises `OSError`."""
        if self.size and self.max_timestamp >= 0:
            before = len(self.time_index)
            self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
            self.index_changes += len(self.time_index) != before
        self.write_indexes()

    # Reading

    def batches(self, position: int, *, nowait: bool = False) -> Iterator[FoundBatch]:
        """The batches from a batch boundary on. Raises `KafkaError` CORRUPT_MESSAGE, `ColdRead` if `nowait`."""
        return self._batches(self.open(), position, self.size, nowait)

    def _batches(self, handle: SegmentFile, position: int, end: int, nowait: bool) -> Iterator[FoundBatch]:
        chunk, start = b"", position
        while position < end:
            if position + _POSITION.size > start + len(chunk):
                start = position
                chunk = self._scan(handle, position, min(SCAN_BYTES, end - position), nowait)
                if len(chunk) < min(_HEADER_BYTES, end - position):
                    raise self._corrupt(position)
            if end - position < _HEADER_BYTES:
                raise self._corrupt(position)
            base_offset, length, delta, max_timestamp, producer_id = _POSITION.unpack_from(chunk, position - start)
            if length < _BATCH_BYTES_MIN or position + length + 12 > end or delta < 0:
                raise self._corrupt(position)
            yield FoundBatch(position, base_offset, length + 12, base_offset + delta, max_timestamp, producer_id)
            position += length + 12

    @staticmethod
    def _scan(handle: SegmentFile, position: int, length: int, nowait: bool) -> bytes:
        if not nowait:
            return handle.file.pread(length, position)
        data = handle.file.pread_nowait(length, position)
        if data is None:
            # Holds the handle: until a thread gets to it the segment may be deleted, and its descriptor another file's.
            raise ColdRead(lambda: handle.file.pread(length, position))
        return data

    def _corrupt(self, position: int) -> KafkaError:
        return KafkaError(ErrorCode.corrupt_message, f"{self.path(LOG)} has no valid batch at position {position}")

    def find(self, offset: Offset, *, nowait: bool = False) -> FoundBatch | None:
        """The first batch that ends at or above `offset`, None if the segment ends before."""
        if nowait and self._offset_index is None and self.size:
            self._warm_or_load_index()
        position = self.offset_index.position_before(offset)
        try:
            for batch in self.batches(position, nowait=nowait):
                if batch.position == position and position and not self.base_offset <= batch.base_offset <= offset:
                    raise self._corrupt(position)
                if batch.last_offset >= offset:
                    return batch
            return None
        except KafkaError:
            if not position:
                raise
        self.rebuild_indexes()
        return self.find(offset)

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index from the batch headers: the index led to where no batch begins."""
        self._offset_index = OffsetIndex(self._fs, self.path(INDEX), self.base_offset)
        self._time_index = TimeIndex(self._fs, self.path(TIME_INDEX), self.base_offset)
        self._offset_index.truncate(0)
        self._time_index.truncate(0)
        self._cache.add(self)
        batches = self.batches(0)
        self.reset()
        for batch in batches:
            self.note_batch(batch.base_offset, batch.last_offset, batch.size, batch.max_timestamp)

    def reset(self) -> None:
        """Reset all that is known of the file's content; `note_batch` then notes it again."""
        self.size = self.bytes_since_index = 0
        self.set_max_timestamp(NO_TIMESTAMP, self.base_offset)
        self.first_timestamp = None
        self._hint = (-1, 0, 0)

    def _warm_or_load_index(self) -> None:
        """Load the offset index if that needs no disk. Raises `ColdRead`."""
        fs, path = self._fs, self.path(INDEX)
        try:
            file = SegmentFile(fs.open(path, read_only=True))
        except FileNotFoundError:
            return
        size = file.file.size()
        if size and file.file.pread_nowait(size, 0) is None:
            raise ColdRead(lambda: file.file.pread(size, 0))

    def read(
        self, offset: Offset, max_bytes: int, *, end: int, min_one_batch: bool, nowait: bool = False
    ) -> LogSlice | None:
        """Batches from the one that holds `offset` up to position `end`. Empty if none fits, None if there are none."""
        hint = self._hint
        if hint[0] == offset:
            _, position, size = hint
            first_offset = offset
        else:
            batch = self.find(offset, nowait=nowait)
            if batch is None:
                return None
            position, first_offset, size = batch.position, batch.base_offset, batch.size
        length = end - position
        if length > max_bytes:
            length = self._whole_batches(position, size, max_bytes, min_one_batch, nowait)
        return LogSlice(self.open(), position, max(length, 0), first_offset, self)

    def _whole_batches(self, position: int, first_size: int, max_bytes: int, min_one: bool, nowait: bool) -> int:
        """How long the batches from `position` on are that fit into `max_bytes`, to the nearest index entry."""
        if first_size > max_bytes:
            return first_size if min_one else 0
        boundary = self.offset_index.boundary_at_or_before(position + max_bytes)
        if boundary >= position + first_size:
            return boundary - position
        length = first_size
        for batch in self.batches(position + first_size, nowait=nowait):
            if length + batch.size > max_bytes:
                break
            length += batch.size
        return length

    def position_of(self, offset: Offset) -> int:
        """Where the batches that end below `offset` end: the bound for a reader that may not see `offset`."""
        batch = self.find(offset)
        return self.size if batch is None else batch.position

    def read_batch(self, batch: FoundBatch) -> bytes:
        return self.open().file.pread(batch.size, batch.position)

    def read_header(self, batch: FoundBatch) -> BatchHeader:
        return read_batch_header(self.open().file.pread(_HEADER_BYTES, batch.position))

    # Time

    @property
    def max_timestamp(self) -> Millis:
        """The largest timestamp in the segment, -1 if there is none."""
        if self._max_timestamp is None:
            if self._time_index is None and self.size:
                self._max_timestamp, self._max_timestamp_offset = self._last_time_entry()
            else:
                self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry
            if self._max_timestamp < 0 and self.size:  # the index was emptied, or the records have no timestamps
                self._max_timestamp, self._max_timestamp_offset = self._scan_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> Offset:
        """The last offset of the first batch that has `max_timestamp`."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else self.base_offset

    def _scan_max_timestamp(self) -> tuple[Millis, Offset]:
        largest = NO_TIMESTAMP, self.base_offset
        for batch in self.batches(0):
            if batch.max_timestamp > largest[0]:
                largest = batch.max_timestamp, batch.last_offset
        return largest

    def _last_time_entry(self) -> tuple[Millis, Offset]:
        """The end of the time index without loading all of it: retention asks this of every segment."""
        index = TimeIndex(self._fs, self.path(TIME_INDEX), self.base_offset)
        try:
            file = self._fs.open(index.path, read_only=True)
        except FileNotFoundError:
            return index.last_entry
        try:
            entries = file.size() // TimeIndex.ENTRY_SIZE
            if entries:
                index.load(file.pread(TimeIndex.ENTRY_SIZE, (entries - 1) * TimeIndex.ENTRY_SIZE))
        finally:
            file.close()
        return index.last_entry if len(index) or not entries else self.time_index.last_entry

    def set_max_timestamp(self, timestamp_ms: Millis, offset: Offset) -> None:
        """What loading or recovery found."""
        self._max_timestamp, self._max_timestamp_offset = timestamp_ms, offset

    def retention_timestamp(self) -> Millis:
        """The largest timestamp, or the file's modification time where records have none."""
        largest = self.max_timestamp
        return largest if largest >= 0 else self._fs.mtime_ms(self.path(LOG))

    def find_timestamp(self, timestamp_ms: Millis, start: Offset) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record from `start` on with at least that timestamp: (timestamp, offset, leader epoch)."""
        from_offset = max(self.time_index.offset_before(timestamp_ms), start)
        for batch in self.batches(self.offset_index.position_before(from_offset)):
            if batch.max_timestamp < timestamp_ms or batch.last_offset < start:
                continue
            data = self.read_batch(batch)
            for record in iterate_records(data):
                if record.timestamp >= timestamp_ms and record.offset >= start:
                    return record.timestamp, record.offset, read_batch_header(data).leader_epoch
        return None

    # Truncation and deletion

    def truncate_to(self, offset: Offset) -> None:
        """Drop the batches that end at or above `offset`. Raises `OSError`."""
        position = self.position_of(offset)
        file = self.open().file
        file.truncate(position)
        file.fsync()  # or a power failure might bring back the old tail behind what is appended next
        self.size = position
        self.offset_index.truncate(self.offset_index.count_below(offset))
        self.time_index.truncate(self.time_index.count_below(offset))
        self.transaction_index.truncate_to(offset)
        self.index_changes += 1
        self._hint = (-1, 0, 0)
        self.bytes_since_index = 0
        if not position:
            self.first_timestamp = None
        self.load_tail()

    def load_tail(self, *, trust_time_index: bool = False) -> Offset:
        """Read the batches behind the last index entries; sets the largest timestamp. Returns the next offset.

        The time index of a segment that was closed cleanly ends with the largest timestamp.
        """
        timestamp, timestamp_offset = self.time_index.last_entry
        positions = self.offset_index.positions
        last_boundary = start = positions[-1] if positions else 0
        if not trust_time_index or timestamp < 0:
            start = min(self.offset_index.position_before(timestamp_offset), start)
        next_offset = self.base_offset
        for batch in self.batches(start):
            next_offset = batch.last_offset + 1
            if batch.position == last_boundary and positions and next_offset - 1 != self._last_indexed_offset():
                raise self._corrupt(last_boundary)
            if batch.max_timestamp > timestamp:
                timestamp, timestamp_offset = batch.max_timestamp, batch.last_offset
        if start >= self.size > 0:
            raise self._corrupt(start)
        self.bytes_since_index = self.size - last_boundary
        self.set_max_timestamp(timestamp, timestamp_offset)
        return next_offset

    def _last_indexed_offset(self) -> Offset:
        return self.base_offset + self.offset_index.offsets[-1]

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted` and let go of them; returns what is to be removed later. Raises `OSError`."""
        self._cache.discard(self)
        self._handle = None
        self._offset_index = self._time_index = self._transaction_index = None
        renamed = []
        for suffix in SUFFIXES:
            path = self.path(suffix)
            try:
                self._fs.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED)
        return renamed

    def close(self) -> None:
        """Let go of the file and the indexes without writing."""
        self._cache.discard(self)
        self._handle = None
        self._offset_index = self._time_index = self._transaction_index = None


class RollLimits(NamedTuple):
    """A log's limits for its segments, computed once from its configuration."""

    segment_bytes: int
    segment_ms: Millis
    offset_entries_max: int
    time_entries_max: int
