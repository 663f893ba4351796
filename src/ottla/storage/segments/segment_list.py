"""The segments of one log, oldest first, with what needs several of them: look-ups, fsyncing, deletion.

Kafka's `LogSegments` and the file half of its `LocalLog`. Knows files and offsets; what is committed or stable is the
log's matter.
"""

from __future__ import annotations

import operator
import posixpath
import random as random_module
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.filesystem import FileSystem
from ottla.model import NO_TIMESTAMP, LeaderEpoch, Millis, Offset
from ottla.protocol.records.record_batch import iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_cache import SegmentCache
from ottla.storage.segments.segment_files import FSYNCED_GAPS, SUFFIXES, TRANSACTION_INDEX, LogSlice
from ottla.storage.segments.transaction_index import AbortedTransaction

OFFSET_MAX = 2**63 - 1

CLEANED, SWAP = ".cleaned", ".swap"
"""What compaction is writing; what it has finished and is about to put in place."""


class Replacement(Protocol):
    """What is known of a compacted segment."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> Millis: ...
    @property
    def max_timestamp_offset(self) -> Offset: ...


class SegmentList:
    """Segments of a log: at least one, once it is loaded; the last one is active."""

    __slots__ = (
        "_cache", "_fs", "_random", "active", "bases", "config", "directory", "items", "scheduled_deletions",
        "size_bytes", "wants_mark",
    )  # fmt: skip

    def __init__(
        self, fs: FileSystem, cache: SegmentCache, directory: str, config: LogConfig, random: random_module.Random
    ) -> None:
        self._fs = fs
        self._cache = cache
        self._random = random
        self.directory = directory
        self.config = config
        self.items: list[Segment] = []
        self.bases: list[Offset] = []
        """Base offsets of `items`."""
        self.active: Segment
        self.size_bytes = 0
        """Size of all log files."""
        self.scheduled_deletions: list[tuple[Millis, str]] = []
        """Files to remove and from when on; `LogManager` does it off the loop."""
        self.wants_mark = False
        """`FSYNCED_GAPS` is true of the log and may not be on disk yet."""

    # The list

    def open(self, base_offset: Offset, size: int, now_ms: Millis) -> Segment:
        """A segment whose files exist. Does not add it."""
        config = self.config
        return Segment(
            self._fs,
            self._cache,
            self.directory,
            base_offset,
            size=size,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            jitter_ms=self._jitter_ms(),
        )

    def _jitter_ms(self) -> Millis:
        jitter_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._random.randrange(jitter_ms) if jitter_ms > 0 else 0

    def take(self, segments: list[Segment]) -> None:
        """Become the list of these."""
        self.items = segments
        self.bases = [segment.base_offset for segment in segments]
        if segments:
            self.active = segments[-1]
        self.recount()

    def recount(self) -> None:
        self.size_bytes = sum(segment.size for segment in self.items)

    def add(self, base_offset: Offset, now_ms: Millis) -> None:
        """Make an empty segment the active one. Raises `OSError`."""
        config = self.config
        segment = Segment.create(
            self._fs,
            self._cache,
            self.directory,
            base_offset,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            jitter_ms=self._jitter_ms(),
        )
        self.items.append(segment)
        self.bases.append(base_offset)
        self.active = segment

    def mark_gaps(self) -> None:
        """Put the mark `FSYNCED_GAPS` on disk where it is true: once in a log's life, before its second segment.

        Without it a power failure that takes the end of one segment, and not the name of the next, would leave what
        looks like a compacted log. Raises `OSError`.
        """
        if self.wants_mark:
            self._fs.open(posixpath.join(self.directory, FSYNCED_GAPS), create=True).close()
            self._fs.fsync_dir(self.directory)
            self.wants_mark = False

    def unmark_gaps(self) -> None:
        """Take the mark away, as a cut is about to leave a gap that no recovery point covers. Raises `OSError`."""
        self.wants_mark = False
        path = posixpath.join(self.directory, FSYNCED_GAPS)
        if self._fs.exists(path):
            self._fs.remove(path)

    def index_of(self, offset: Offset) -> int:
        """The number of the last segment that starts at or below `offset`."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def from_offset(self, offset: Offset) -> list[Segment]:
        """The segments that can hold `offset` or something above it."""
        return self.items[self.index_of(offset) :]

    # Deletion

    def schedule_deletion(self, path: str, now_ms: Millis) -> None:
        """Schedule the removal of a file after `file.delete.delay.ms`."""
        self.scheduled_deletions.append((now_ms + self.config.file_delete_delay_ms, path))

    def _delete_later(self, segment: Segment, now_ms: Millis) -> None:
        for path in segment.mark_deleted():
            self.schedule_deletion(path, now_ms)
        self.size_bytes -= segment.size

    def drop_oldest(self, count: int, now_ms: Millis) -> None:
        """Take the oldest segments out and rename their files. Raises `OSError`."""
        dropped = self.items[:count]
        del self.items[:count], self.bases[:count]
        for segment in dropped:
            self._delete_later(segment, now_ms)

    def drop_from(self, number: int, now_ms: Millis) -> None:
        """Take the newest segments out, newest first, so that a crash leaves no gap. Raises `OSError`."""
        while len(self.items) > number:
            segment = self.items.pop()
            self.bases.pop()
            self._delete_later(segment, now_ms)
        if self.items:
            self.active = self.items[-1]

    # Truncation

    def detach_from(self, number: int) -> list[Segment]:
        """Take the newest segments out, newest first; their files stay as they are."""
        detached = self.items[number:][::-1]
        del self.items[number:], self.bases[number:]
        for segment in detached:
            segment.close()
            self.size_bytes -= segment.size
        if self.items:
            self.active = self.items[-1]
        return detached

    def add_placeholder(self, base_offset: Offset, now_ms: Millis) -> None:
        """An active segment whose files are still to be made."""
        self.active = self.open(base_offset, 0, now_ms)
        self.items.append(self.active)
        self.bases.append(base_offset)

    def private_copies(self) -> list[Segment]:
        """Copies of all segments, for a thread."""
        return [segment.private_copy() for segment in self.items]

    def replace_active(self, segment: Segment) -> None:
        """Put the copy in its place, which was cut."""
        segment.join(self.active)
        self.items[-1] = self.active = segment
        self.recount()

    # Compaction

    def has_run(self, segments: Sequence[Segment]) -> bool:
        """Whether these follow each other in the list, still the same ones."""
        first = self.index_of(segments[0].base_offset)
        found = self.items[first : first + len(segments)]
        return len(found) == len(segments) and all(map(operator.is_, found, segments))

    def replace(self, old: Sequence[Segment], new: Sequence[Replacement], now_ms: Millis) -> None:
        """Put the `.cleaned` files of `new` in the place of `old`, which are sealed. Raises `OSError`.

        From the moment that the last file is a `.swap` file a crash leads to the new segments, before it to the old
        ones (`interrupted_work.py`). New segments get their first suffix last to first for that reason.
        """
        for each in reversed(new):
            self._rename(each.base_offset, CLEANED, SWAP)
        first = self.index_of(old[0].base_offset)
        for segment in old:
            self._delete_later(segment, now_ms)
        opened = []
        for each in new:
            self._rename(each.base_offset, SWAP, "")
            segment = self.open(each.base_offset, each.size, old[0].created_ms)
            segment.set_max_timestamp(each.max_timestamp, each.max_timestamp_offset)
            opened.append(segment)
            self.size_bytes += each.size
        self.items[first : first + len(old)] = opened
        self.bases[first : first + len(old)] = [each.base_offset for each in new]

    def _rename(self, base_offset: Offset, ending: str, new_ending: str) -> None:
        """Rename all files of a segment, the log first: recovery goes by its suffix."""
        for suffix in SUFFIXES:
            path = posixpath.join(self.directory, f"{base_offset:020d}{suffix}")
            try:
                self._fs.rename(path + ending, path + new_ending)
            except FileNotFoundError:
                if suffix != TRANSACTION_INDEX:  # which is there only where a transaction was aborted
                    raise

    def close(self) -> None:
        for segment in self.items:
            segment.close()

    # Look-ups

    def read(
        self, offset: Offset, max_bytes: int, up_to: Offset, end: Offset, min_one_batch: bool, nowait: bool
    ) -> LogSlice | None:
        """`Log.read` without the checks; `end` is the log end. Raises `OSError`, `KafkaError`, `ColdRead`."""
        bases = self.bases
        number = len(bases) - 1
        if offset < bases[number]:
            number = self.index_of(offset)
        while number < len(bases):
            segment = self.items[number]
            number += 1
            if up_to >= end or (number < len(bases) and up_to >= bases[number]):
                stop = segment.size
            else:
                stop = segment.position_of(up_to)
            found = segment.read(offset, max_bytes, stop, min_one_batch, nowait)
            if found is not None:
                return found if found.length else None
        return None

    def end_of(self, part: LogSlice) -> Offset:
        """An offset behind the batches of a slice, not far behind them: what the next entry of the index says."""
        number = self.index_of(part.first_offset)
        behind = self.items[number].offset_index.offset_from(part.position + part.length)
        if behind >= 0:
            return behind
        return self.bases[number + 1] if number + 1 < len(self.bases) else OFFSET_MAX

    def aborted_transactions(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(start):
            some, complete = segment.transaction_index.overlapping(start, end)
            found += some
            if complete:
                break
        return found

    def find_timestamp(self, timestamp_ms: Millis, start: Offset) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record at or after `start` whose timestamp is at least `timestamp_ms`.

        Goes on to the next segment where Kafka stops at the first that reaches the timestamp: records below the log
        start may be all that reached it (redpanda#18282).
        """
        for segment in self.from_offset(start):
            if segment.size and segment.max_timestamp >= timestamp_ms:
                found = segment.find_timestamp(timestamp_ms, start, self.config.max_decompressed_message_bytes)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self, start: Offset) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record with the largest timestamp at or after `start`."""
        live = self.from_offset(start)
        best = max(live, key=lambda segment: segment.max_timestamp)
        if best.max_timestamp < 0:
            return None
        record_bytes_max = self.config.max_decompressed_message_bytes
        found = best.find_timestamp(best.max_timestamp, start, record_bytes_max)
        if found is not None:
            return found
        # What the index remembers lies below the log start now, or in a batch that compaction emptied.
        largest = NO_TIMESTAMP
        for segment in live:
            for batch in segment.batches(segment.offset_index.position_before(start)):
                if batch.base_offset >= start:
                    if batch.max_timestamp > largest and segment.read_header(batch).count:
                        largest = batch.max_timestamp
                elif batch.last_offset >= start:  # cut by the log start: its largest may be in the part that is gone
                    records = iterate_records(segment.read_batch(batch), record_bytes_max=record_bytes_max)
                    largest = max(largest, *(record.timestamp for record in records if record.offset >= start))
        return None if largest < 0 else self.find_timestamp(largest, start)

    # Fsyncing

    def fsync_work(self, first: Offset, *, with_indexes: bool) -> tuple[Callable[[], None], Callable[[], None]]:
        """How to make everything from `first` on durable: what to do, in a thread if need be, and what to call after.

        Raises `OSError`, as the work does.
        """
        pairs = [segment.fsync_work(with_indexes=with_indexes) for segment in self.from_offset(first)]

        def work() -> None:
            for fsync, _ in pairs:
                fsync()

        def done() -> None:
            for _, finish in pairs:
                finish()

        return work, done
