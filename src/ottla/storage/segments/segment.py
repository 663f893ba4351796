"""One segment of a log: its `.log` file with the indexes beside it (Kafka's `LogSegment`).

The file opens and the indexes load when first needed. A reader gets a `LogSlice`, which keeps the file open for as
long as it lives, whatever happens to the segment meanwhile.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterator

from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.model import NO_TIMESTAMP, Buffer, LeaderEpoch, Millis, Offset
from ottla.protocol.records.record_batch import HEADER_SIZE, BatchHeader, first_record, read_batch_header
from ottla.storage.segments.batch_scan import SCAN_BYTES, FoundBatch, batch_at, corrupt, scan_batches
from ottla.storage.segments.index_file import RELATIVE_OFFSET_MAX
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.segment_cache import SegmentCache
from ottla.storage.segments.segment_files import (
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    LogSlice,
    SegmentFile,
    create_empty_files,
    fsync_file,
    rename_to_deleted,
)
from ottla.storage.segments.segment_indexes import SegmentIndexes
from ottla.storage.segments.time_index import TimeIndex
from ottla.storage.segments.transaction_index import TransactionIndex

WRITEBACK_STEP_BYTES = 8 << 20
"""After so many bytes the kernel is asked to begin writing them to disk: a fraction of what it would collect itself."""
_STEP = WRITEBACK_STEP_BYTES  # a C global when compiled


class Segment:
    """A log file and its indexes. Only the last segment of a log takes appends."""

    __slots__ = (
        "_cache", "_fs", "_fsynced_index_changes", "_handle", "_hint_offset", "_hint_position", "_hint_size",
        "_indexes", "_max_timestamp", "_max_timestamp_offset", "base_offset", "bytes_since_index", "created_ms",
        "directory", "first_timestamp", "index_changes", "index_interval_bytes", "jitter_ms", "recently_used", "size",
    )  # fmt: skip

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
        self._hint_offset: Offset = -1
        """First offset, position and size of the last batch appended: consumers at the tail ask for just that."""
        self._hint_position = 0
        self._hint_size = 0
        self._max_timestamp: Millis | None = None
        self._max_timestamp_offset: Offset = base_offset
        self._handle: SegmentFile | None = None
        self._indexes = SegmentIndexes(fs, self.path(""), base_offset)

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
        segment.create_files()
        return segment

    def create_files(self) -> None:
        """Make the files, empty, replacing leftovers of the same name. Raises `OSError`."""
        create_empty_files(self._fs, self.path(""))
        self._max_timestamp = NO_TIMESTAMP

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
        index = self._indexes.offset
        if index is None:
            index = self._indexes.load_offset(has_content=self.size > 0)
            self._cache.add(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._indexes.time
        if index is None:
            index = self._indexes.load_time(has_content=self.size > 0)
            self._cache.add(self)
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._indexes.transaction
        if index is None:
            index = self._indexes.load_transaction()
            self._cache.add(self)
        return index

    def index_sizes(self) -> tuple[int, int]:
        """Bytes of the offset index and of the time index. Raises `OSError`."""
        return self._indexes.sizes()

    def memory_bytes(self) -> int:
        return self._indexes.memory_bytes

    def release(self) -> None:
        """Close the file and drop the indexes from memory, if what they hold is in their files."""
        self._handle = None
        try:
            self.write_indexes()
        except OSError:
            return
        self._indexes.drop()

    def write_indexes(self) -> None:
        """Put pending index entries into the files. Raises `OSError`."""
        self._indexes.write()

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

    def write(self, buffer: Buffer) -> None:
        """Write what is next in the file. On `OSError` there may be a partial write behind `size`.

        `note_batch` for each of its batches follows, before anything else.
        """
        position = self.size
        handle = self._handle
        if handle is None:
            handle = self.open()
        self.recently_used = True
        end = position + handle.file.pwrite((buffer,), position)
        if position // _STEP != end // _STEP:
            start = position - position % _STEP
            self._fs.start_writeback(handle.file, end - start, start)

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
            self.offset_index.append(last_offset, position)  # sparse: every `index.interval.bytes`, as Kafka
            self.time_index.maybe_append(largest, self._max_timestamp_offset)
            self.index_changes += 1
            self.bytes_since_index = size
        else:
            self.bytes_since_index += size
        self._hint_offset = base_offset
        self._hint_position = position
        self._hint_size = size
        self.size = position + size

    def should_roll(
        self, size: int, last_offset: Offset, max_timestamp: Millis, now_ms: Millis, limits: RollLimits
    ) -> bool:
        """Whether batches of `size` bytes up to `last_offset` have to go to a new segment."""
        # The rules are those of `LogSegment.shouldRoll`.
        if self.size + size > limits.segment_bytes:  # so positions fit into the index's int32 too
            return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:  # index entries have int32 offsets
            return True
        if self.size:
            first = self.first_timestamp
            if first is None:
                first = self.first_batch_timestamp()
            # By the time of records, which a restart and replicas agree on; without timestamps by the wall clock.
            waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if waited > limits.segment_ms - self.jitter_ms:
                return True
        index = self._indexes.offset
        if index is None:
            index = self.offset_index
        if len(index.offsets) >= limits.offset_entries_max:  # a full index ends the segment (`segment.index.bytes`)
            return True
        times = self._indexes.time
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
        if self.size and self.max_timestamp >= 0:  # as `LogSegment.onBecomeInactiveSegment` (KIP-33)
            before = len(self.time_index)
            self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
            self.index_changes += len(self.time_index) != before
        self.write_indexes()

    # Reading

    def batches(self, position: int, *, nowait: bool = False) -> Iterator[FoundBatch]:
        """The batches from a batch boundary on. Raises `KafkaError` CORRUPT_MESSAGE, `ColdRead` if `nowait`."""
        return scan_batches(self.open(), position, self.size, nowait=nowait)

    def _corrupt(self, position: int) -> KafkaError:
        return corrupt(self.path(LOG), position)

    def find(self, offset: Offset, nowait: bool = False) -> FoundBatch | None:
        """The first batch that ends at or above `offset`, None if the segment ends before."""
        if nowait and self._indexes.offset is None and self.size:
            self._indexes.check_warm()
        index = self._indexes.offset
        if index is None:
            index = self.offset_index
        position, following, last_offset = index.around(offset)
        if following - position > SCAN_BYTES:
            # The batch of an index entry ends below `offset`. Where batches are large the next entry is the next batch,
            # which nearly always is the one, and need not be reached by way of the one before.
            guess = batch_at(self.open(), following, self.size, nowait=nowait)
            if guess is not None and guess.base_offset <= offset <= guess.last_offset == last_offset:
                return guess
        try:
            if position and position >= self.size:  # the index is of a longer file
                raise self._corrupt(position)
            for batch in self.batches(position, nowait=nowait):
                if batch.position == position and position and not self.base_offset <= batch.base_offset <= offset:
                    raise self._corrupt(position)
                if batch.last_offset >= offset:
                    found = batch
                    break
            else:
                return None
        except KafkaError:
            if not position:
                raise
            from ottla.storage.segments.segment_rescan import rebuild_indexes  # rare

            rebuild_indexes(self)
            return self.find(offset)
        if found.base_offset > offset:
            self._check_place(found, nowait)
        return found

    def _check_place(self, batch: FoundBatch, nowait: bool) -> None:
        """After a gap: the base offset lies outside the checksum, so hold it against the next batch's."""
        position = batch.position + batch.size
        following = next(self.batches(position, nowait=nowait), None)
        if following is not None and following.base_offset <= batch.last_offset:
            raise self._corrupt(batch.position)

    def recreate_indexes(self) -> None:
        """Empty offset and time index, in memory and on disk. Raises `OSError`."""
        self._indexes.recreate()
        self._cache.add(self)

    def reset(self) -> None:
        """Reset all that is known of the file's content; `note_batch` then notes it again."""
        self.size = self.bytes_since_index = 0
        self.set_max_timestamp(NO_TIMESTAMP, self.base_offset)
        self.first_timestamp = None
        self._hint_offset = -1

    def read(
        self, offset: Offset, max_bytes: int, end: int, min_one_batch: bool, nowait: bool = False
    ) -> LogSlice | None:
        """Batches from the one that holds `offset` up to position `end`. Empty if none fits, None if there are none."""
        if self._hint_offset == offset:
            position, size = self._hint_position, self._hint_size
            first_offset = offset
        else:
            batch = self.find(offset, nowait)
            if batch is None:
                return None
            position, first_offset, size = batch.position, batch.base_offset, batch.size
        length = end - position
        if length > max_bytes:
            length = self._whole_batches(position, size, max_bytes, min_one_batch, nowait)
        handle = self._handle
        if handle is None:
            handle = self.open()
        self.recently_used = True
        return LogSlice(handle, position, length if length > 0 else 0, first_offset)

    def _whole_batches(self, position: int, first_size: int, max_bytes: int, min_one: bool, nowait: bool) -> int:
        """How long the batches from `position` on are that fit into `max_bytes`, to the nearest index entry."""
        if first_size > max_bytes:
            return first_size if min_one else 0  # a batch larger than the limit is sent alone (KIP-74)
        index = self._indexes.offset
        if index is None:
            index = self.offset_index
        boundary = index.boundary_at_or_before(position + max_bytes)
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
        return read_batch_header(self.open().file.pread(HEADER_SIZE, batch.position))

    # Time

    @property
    def max_timestamp(self) -> Millis:
        """The largest timestamp in the segment, -1 if there is none."""
        if self._max_timestamp is None:
            last = self._indexes.last_time_entry() if self._indexes.time is None and self.size else None
            self._max_timestamp, self._max_timestamp_offset = last or self.time_index.last_entry
            if self._max_timestamp < 0 and self.size:  # the index was emptied, or the records have no timestamps
                from ottla.storage.segments.segment_rescan import largest_timestamp  # rare

                self._max_timestamp, self._max_timestamp_offset = largest_timestamp(self)
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> Offset:
        """The last offset of the first batch that has `max_timestamp`."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else self.base_offset

    def set_max_timestamp(self, timestamp_ms: Millis, offset: Offset) -> None:
        """What loading or recovery found."""
        self._max_timestamp, self._max_timestamp_offset = timestamp_ms, offset

    def retention_timestamp(self) -> Millis:
        """The largest timestamp, or the file's modification time where records have none."""
        largest = self.max_timestamp
        return largest if largest >= 0 else self._fs.mtime_ms(self.path(LOG))  # `LogSegment.largestTimestamp`

    def find_timestamp(
        self, timestamp_ms: Millis, start: Offset, record_bytes_max: int
    ) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record from `start` on with at least that timestamp: (timestamp, offset, leader epoch).

        Raises `RecordTooLarge` for one of more than `record_bytes_max` bytes before it.
        """
        from_offset = max(self.time_index.offset_before(timestamp_ms), start)  # all before it are earlier (KIP-33)
        for batch in self.batches(self.offset_index.position_before(from_offset)):
            if batch.max_timestamp < timestamp_ms or batch.last_offset < start:  # its header says that none fits
                continue
            found = first_record(self.read_batch(batch), timestamp_ms, start, record_bytes_max=record_bytes_max)
            if found is not None:
                return found
        return None

    # Truncation and deletion

    def known_boundary(self, offset: Offset) -> Offset:
        """An offset up to `offset` at which a batch begins, the last one that is known without the disk."""
        index = self._indexes.offset
        count = 0 if index is None else index.count_below(offset)
        return self.base_offset if index is None or not count else self.base_offset + index.offsets[count - 1] + 1

    def batch_start(self, offset: Offset) -> Offset:
        """`offset`, or the first offset of the batch that it is inside. Raises `OSError`, `KafkaError`."""
        batch = self.find(offset)
        return offset if batch is None else min(offset, batch.base_offset)

    def note_cut(self, position: int) -> None:
        """The file ends at `position` now, where a batch began; `segment_rescan.truncate` sees to the indexes."""
        self.size = position
        self.index_changes += 1
        self._hint_offset = -1
        self.bytes_since_index = 0
        if not position:
            self.first_timestamp = None

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted` and let go of them; returns what is to be removed later. Raises `OSError`."""
        self.close()
        return self.rename_to_deleted()

    def rename_to_deleted(self) -> list[str]:
        """The second half of `mark_deleted`, which may run in a thread."""
        return rename_to_deleted(self._fs, self.path(""))

    def private_copy(self) -> Segment:
        """Another one of the same files, that shares nothing with this one: for a thread, until `join`."""
        return Segment(
            self._fs,
            SegmentCache(),
            self.directory,
            self.base_offset,
            size=self.size,
            index_interval_bytes=self.index_interval_bytes,
            jitter_ms=self.jitter_ms,
            now_ms=self.created_ms,
        )

    def join(self, other: Segment) -> None:
        """Take the place of the segment that this one is a copy of."""
        other.close()
        self._cache = other._cache
        self._cache.add(self)

    def close(self) -> None:
        """Close the file and the indexes without writing."""
        self._cache.discard(self)
        self._handle = None
        self._indexes.drop()


class RollLimits:
    """A log's limits for its segments, computed once from its configuration."""

    __slots__ = ("offset_entries_max", "segment_bytes", "segment_ms", "time_entries_max")

    def __init__(self, segment_bytes: int, segment_ms: Millis, offset_entries_max: int, time_entries_max: int) -> None:
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.offset_entries_max = offset_entries_max
        self.time_entries_max = time_entries_max
