"""One partition's log: append, read, look-up, truncation, retention and flushing (Kafka's `UnifiedLog`).

A log is composed of parts, each with a job of its own: `SegmentList` (files), `LogState` (offsets), `LogHealth` (open,
closed, offline), `LogFlusher` (fsync), leader epochs and producer state, which `log_loader` makes (`LogParts`), and
`LogWriter` (appends), `SegmentDeletion`, `Truncator` and `LogCloser`, which work on them. Everything is synchronous and
runs on the event loop, except `flush_async`, `flush_all_async` and `close_async`, which wait for an fsync in a thread.
Errors that clients see are `KafkaError`; after a disk error that leaves the log's content in doubt every call raises
KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_TIMESTAMP, NOT_TRANSACTIONAL, Buffer, LeaderEpoch, Millis, Offset, TopicPartition
from ottla.protocol.records.record_batch import BatchHeader, unpack_header
from ottla.storage.config import LONG_MAX, LogConfig
from ottla.storage.limits import limits_and_policy
from ottla.storage.log.append_info import AppendInfo, duplicate_info
from ottla.storage.log.log_closer import LogCloser
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_parts import LogParts
from ottla.storage.log.log_writer import LogWriter
from ottla.storage.log.stamp import Stamped
from ottla.storage.log.truncation import Truncator
from ottla.storage.log.validation import CLIENT, REPLICATION, Origin, check_follows, check_produce_version, validate
from ottla.storage.producers.producer_batches import check_producers
from ottla.storage.producers.producer_entry import Duplicate, check_has_id
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_files import ColdRead, LogSlice
from ottla.storage.segments.segment_list import Replacement
from ottla.storage.segments.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from ottla.storage.log.segment_deletion import SegmentDeletion
    from ottla.storage.recovery.damage import RecoveryResult

__all__ = ["ColdRead", "Log", "LogSlice"]

T = TypeVar("T")


class Log:
    """The log of one partition. `log_loader.load_log` makes it."""

    __slots__ = (
        "_flush_messages", "_health", "_note_unflushed", "_parts", "_policy", "_random", "_rules", "_segments",
        "_state", "_writer", "config", "epochs", "flusher", "producer_state", "recovery", "topic_id",
        "topic_partition", "truncator",
    )  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        random: random_module.Random,
        parts: LogParts,
        recovery: RecoveryResult,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._random = random
        self._parts = parts
        _, self._state, self._health, self._segments, self.flusher, self.epochs, self.producer_state = parts
        self.recovery = recovery
        self._writer = LogWriter(parts, limits_and_policy(config)[0])
        self.truncator = Truncator(parts)
        self._note_unflushed: Callable[[], None] | None = None
        self.config = config
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Follow the topic's settings from now on."""
        if self.config.compact and not config.compact and self._state.cleaned is None:
            self._state.cleaned = self._state.log_start  # it may have gaps, from a leader that was compacted
        self.config = config
        self._writer.limits, self._policy, self._rules = limits_and_policy(config)
        self._flush_messages = config.flush_messages if config.flush_ms > 0 else 1
        self._segments.config = config
        self._segments.active.index_interval_bytes = config.index_interval_bytes
        self._writer.on_unflushed = self._note_unflushed if 0 < config.flush_ms < LONG_MAX else None

    def watch_unflushed(self, note: Callable[[Log], None] | None) -> None:
        """Call `note` after appends, as long as the topic has `flush.ms`."""
        self._note_unflushed = None if note is None else partial(note, self)
        self._writer.on_unflushed = self._note_unflushed if 0 < self.config.flush_ms < LONG_MAX else None

    # What the log is

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset}, {self.directory})"

    @property
    def directory(self) -> str:
        return self._segments.directory

    @property
    def log_start_offset(self) -> Offset:
        """The first record that is served."""
        return self._state.log_start

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._state.log_end

    @property
    def high_watermark(self) -> Offset:
        """Records below it are committed. Setting it clamps to the log; it goes down only with a truncation."""
        return self._state.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: Offset) -> None:
        state = self._state
        if offset > state.log_end:
            offset = state.log_end
        if offset > state.high_watermark:
            state.high_watermark = offset
            self.producer_state.on_high_watermark(offset)

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction below it is decided and committed: the bound of read_committed."""
        unstable = self.producer_state.first_unstable_offset
        state = self._state
        if unstable is None or unstable >= state.high_watermark:
            return state.high_watermark
        return max(unstable, state.log_start)

    @property
    def recovery_point(self) -> Offset:
        """Everything below is on disk, indexes included."""
        return self._state.recovery_point

    @property
    def durable_offset(self) -> Offset:
        """Everything below is on disk as far as the records go."""
        return self._state.durable

    @property
    def safe_end_offset(self) -> Offset:
        """How far the records are as safe as the topic asks before they count as committed: the log end while fewer
        than `flush.messages` of them are not on disk, else what is on disk."""
        state = self._state
        return state.log_end if state.log_end - state.durable < self._flush_messages else state.durable

    @property
    def cleaned_offset(self) -> Offset | None:
        """Compacted up to here; None if it never was."""
        return self._state.cleaned

    @cleaned_offset.setter
    def cleaned_offset(self, offset: Offset | None) -> None:
        self._state.cleaned = offset

    @property
    def truncations(self) -> int:
        """How often the log was cut since it was loaded."""
        return self._state.truncations

    @property
    def last_append_ms(self) -> Millis:
        """When the log last heard of the time: at the latest append, load or retention check."""
        return self._state.now_ms

    @property
    def health(self) -> LogHealth:
        return self._health

    @property
    def failure(self) -> OSError | None:
        """The disk error after which this log refuses everything."""
        return self._health.failure

    @property
    def is_open(self) -> bool:
        """Neither closed nor offline, nor being cut."""
        return self._health.is_open

    # Segments

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is active."""
        return tuple(self._segments.items)

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

    @property
    def size_bytes(self) -> int:
        """Size of all log files."""
        return self._segments.size_bytes

    @property
    def scheduled_deletions(self) -> list[tuple[Millis, str]]:
        """Files to remove and from when on; `LogManager` does it off the loop."""
        return self._segments.scheduled_deletions

    @property
    def first_segment_offset(self) -> Offset:
        """Base offset of the oldest segment, at or below the log start; -1 while a power failure may bring back one of
        those that were dropped."""
        return -1 if self.flusher.has_unfsynced_names else self._segments.bases[0]

    @property
    def max_timestamp_ms(self) -> Millis:
        """The largest timestamp of all segments, -1 without any."""
        return max(segment.max_timestamp for segment in self._segments.items)

    def has_run(self, segments: Sequence[Segment]) -> bool:
        """Whether these are still segments of the log, one after the other."""
        return self._segments.has_run(segments)

    # Appending

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: LeaderEpoch,
        *,
        now_ms: Millis,
        origin: Origin = CLIENT,
        request_version: int = 13,
        guard: int = NOT_TRANSACTIONAL,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Validate, assign offsets and append. `records` should be writable: offsets are set in place, without a copy.

        A client's transactional batch comes with a `guard` (`producer_entry.py`), a marker with the version by which
        its transaction goes. Does not move the high watermark. Raises `KafkaError`: what validation and producer state
        refuse, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR (also for a full disk, after which the log goes on).
        """
        if not self._health.is_open:
            raise self._health.error()
        is_own = origin is not CLIENT and origin is Origin.COORDINATOR
        if origin is CLIENT or is_own:
            stamped = self._rules.stamp(records, now_ms, self._state.log_end, leader_epoch, is_own)
            if stamped is not None:
                return self._append_stamped(records, stamped, leader_epoch, now_ms, origin, guard, transaction_version)
        check_produce_version(records, request_version)
        state = self._state
        buffer, headers, max_timestamp, _, append_time = validate(
            records, self._policy, now_ms=now_ms, next_offset=state.log_end, leader_epoch=leader_epoch, origin=origin
        )
        size = len(buffer)
        if size > self._writer.limits.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition}, which exceeds the "
                f"maximum configured segment size of {self._writer.limits.segment_bytes}.",
            )
        first_offset = headers[0].base_offset
        if origin is CLIENT and headers[0].is_transactional:
            check_has_id(guard)
        if headers[0].producer_id >= 0 or len(headers) > 1:
            duplicate = check_producers(self.producer_state, buffer, headers, origin, guard, transaction_version)
            if duplicate is not None:
                return self._duplicate_info(duplicate, leader_epoch)
        self._writer.append(buffer, size, headers, max_timestamp, now_ms)
        return self._appended(first_offset, append_time, max_timestamp, leader_epoch, size, len(headers))

    def _append_stamped(
        self,
        records: Buffer,
        stamped: Stamped,
        leader_epoch: LeaderEpoch,
        now_ms: Millis,
        origin: Origin,
        guard: int,
        transaction_version: int,
    ) -> AppendInfo:
        """The same for a batch that is ready to be written."""
        headers: list[BatchHeader] | None = None
        if stamped.is_transactional and origin is CLIENT:
            check_has_id(guard)
        if stamped.producer_id >= 0:
            headers = [unpack_header(records)]
            duplicate = check_producers(self.producer_state, records, headers, origin, guard, transaction_version)
            if duplicate is not None:
                return self._duplicate_info(duplicate, leader_epoch)
        self._writer.append_stamped(records, stamped, headers, leader_epoch, now_ms)
        return self._appended(stamped.base_offset, NO_TIMESTAMP, stamped.max_timestamp, leader_epoch, stamped.size, 1)

    def _appended(
        self, first: Offset, append_time: Millis, max_timestamp: Millis, epoch: LeaderEpoch, size: int, batches: int
    ) -> AppendInfo:
        state = self._state
        end = state.log_end
        needs_flush = end - state.durable >= self._flush_messages
        info = AppendInfo()
        info.first_offset = first
        info.last_offset = end - 1
        info.log_append_time_ms = append_time
        info.log_start_offset = state.log_start
        info.max_timestamp_ms = max_timestamp
        info.leader_epoch = epoch
        info.size_bytes = size
        info.batch_count = batches
        info.needs_flush = needs_flush
        return info

    def append_as_follower(self, records: Buffer, *, now_ms: Millis) -> AppendInfo:
        """Append batches that a leader numbered; they start at or above the log end. Raises `KafkaError`, and
        `MissingOffsets` for a gap where the log is not known to have gaps (`cleaned_offset`)."""
        self._health.check()
        state = self._state
        buffer, headers, max_timestamp, _, _ = validate(
            records, self._policy, now_ms=now_ms, next_offset=state.log_end, leader_epoch=-1, origin=REPLICATION
        )
        if not headers:
            raise KafkaError(ErrorCode.corrupt_message, f"no whole batch to append to {self.topic_partition}")
        first, size, epoch = headers[0], len(buffer), headers[-1].leader_epoch
        if first.base_offset < state.log_end == state.log_start <= first.last_offset:
            self.truncate_fully_and_start_at(first.base_offset)  # empty; the leader's start is inside a batch
        if first.base_offset != state.log_end or len(headers) > 1:
            check_follows(headers, state, self.topic_partition, is_compacted=self.config.compact)
        self._writer.append(buffer, size, headers, max_timestamp, now_ms)
        return self._appended(first.base_offset, NO_TIMESTAMP, max_timestamp, epoch, size, len(headers))

    def find_duplicate(self, records: Buffer, leader_epoch: LeaderEpoch) -> AppendInfo | None:
        """The answer to a retry of what is in the log; None for what is not. Appends nothing."""
        duplicate = self.producer_state.find_duplicate(records) if self._health.is_open else None
        return None if duplicate is None else self._duplicate_info(duplicate, leader_epoch)

    def _duplicate_info(self, duplicate: Duplicate, leader_epoch: LeaderEpoch) -> AppendInfo:
        # The original may still be on its way to the disk, and the retry must not be answered before it is there.
        waits = self._flush_messages == 1 and duplicate.last_offset >= self._state.durable
        return duplicate_info(duplicate, leader_epoch, self._state.log_start, waits)

    def roll(self) -> None:
        """Start a new segment now, unless the active one is empty. Raises `KafkaError`."""
        self._health.check()
        try:
            self._writer.roll(self._state.log_end)
        except OSError as error:
            raise self._health.refuse(error) from error

    # Leader epochs

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """Begin `epoch` at the log end, as a new leader does; its first append sees to it that it is written down.

        So the start of a node with thousands of idle partitions writes nothing.
        """
        self.epochs.assign(epoch, self._state.log_end)

    def mend_epochs(self, found: Sequence[tuple[LeaderEpoch, Offset]], last_offset: Offset) -> None:
        """Correct the leader epochs to those in the batches up to the one at `last_offset`."""
        self.epochs.mend(found, last_offset)
        self.flusher.write_later(self.epochs.path, self.epochs.encode)
        self.flusher.is_due = True

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self.epochs.latest_epoch

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch of the record at `offset`, -1 if unknown."""
        epoch = self.epochs.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """(largest epoch <= `epoch`, its end offset), (-1, -1) if unknown (KIP-101, KIP-279)."""
        return self.epochs.end_offset_for(epoch, self._state.log_end)

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, up_to: Offset, min_one_batch: bool = True, nowait: bool = False
    ) -> LogSlice | None:
        """The batches from the one that holds `offset` (or the next existing one), below `up_to`, at most `max_bytes`.

        Always whole batches of one segment. With `min_one_batch` the first batch comes even when it is larger than
        `max_bytes`. None when there is nothing to read, or nothing fits. A slice keeps its file. Raises `KafkaError`
        OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE; with `nowait` `ColdRead` if the look-up (not the slice) needs the disk.
        """
        if not self._health.is_open:
            raise self._health.error()
        state = self._state
        end = state.log_end
        if offset < state.log_start or offset > end:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have log "
                f"segments in the range {state.log_start} to {end}.",
            )
        if offset >= up_to or offset == end:
            return None
        try:
            return self._segments.read(offset, max_bytes, up_to, end, min_one_batch, nowait)
        except OSError as error:
            raise self._health.refuse(error) from error
        except KafkaError as error:
            self._health.suspect(error, offset)
            raise

    def holds_nothing(self, offset: Offset, high_watermark: Offset, log_start: Offset) -> bool:
        return self._health.is_open and self._state.holds_nothing(offset, high_watermark, log_start)

    def aborted_transactions(
        self, start: Offset, end: Offset, part: LogSlice | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [start, end), or within it only `part`, for read_committed. Raises
        `KafkaError`."""
        end_of = self._segments.end_of
        return self._try(
            lambda: self._segments.aborted_transactions(start, end if part is None else min(end, end_of(part)))
        )

    def offset_for_timestamp(
        self, timestamp_ms: Millis, start: Offset = 0
    ) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record from the log start, or from `start` on, with a timestamp of at least `timestamp_ms`.

        Raises `KafkaError`, and `LongWork` where a batch is large: it finds the record in there.
        """
        return self._try(lambda: self._segments.find_timestamp(timestamp_ms, max(start, self._state.log_start)))

    def offset_of_max_timestamp(self, start: Offset = 0) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record with the largest timestamp (ListOffsets -3). Raises `KafkaError` and `LongWork`."""
        return self._try(lambda: self._segments.find_max_timestamp(max(start, self._state.log_start)))

    def _try(self, work: Callable[[], T]) -> T:
        """The result of work on the files. A disk error takes the log offline, or passes."""
        self._health.check()
        try:
            return work()
        except OSError as error:
            raise self._health.refuse(error) from error
        except KafkaError as error:
            self._health.suspect(error, None)
            raise

    # Making it shorter

    def _deletion(self) -> SegmentDeletion:
        from ottla.storage.log.segment_deletion import SegmentDeletion  # not at a start

        return SegmentDeletion(self._parts, self._writer.roll)

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log start up to `offset` (-1: the high watermark); returns the new log start. Raises `KafkaError`:
        OFFSET_OUT_OF_RANGE above the high watermark, POLICY_VIOLATION if only compacted."""
        self._deletion().delete_records(offset, self.topic_partition)
        return self.log_start_offset

    def advance_log_start(self, offset: Offset) -> None:
        """Move the log start up; whole segments below it go with the next retention check. Raises `KafkaError`."""
        self._deletion().advance_log_start(offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the records from `offset` on. Blocks; `LogManager.truncate` does not. Raises `KafkaError`."""
        self.truncator.truncate(offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything; the log starts and ends at `offset`. Blocks. Raises `KafkaError`."""
        self.truncator.truncate(offset, starts_over=True)

    def delete_old_segments(self, now_ms: Millis) -> int:
        """Apply retention; returns the number of segments dropped. Their files go after `file.delete.delay.ms`. Raises
        `KafkaError`."""
        return self._deletion().delete_old_segments(now_ms)

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Replacement], now_ms: Millis) -> None:
        """Put compacted segments, whose `.cleaned` files are fsynced, in the place of sealed ones, whose files go after
        `file.delete.delay.ms`; slices of them go on. Raises `KafkaError`."""
        self._deletion().replace_segments(old, new, now_ms)

    # Fsyncing

    def observe(
        self,
        fsynced: Callable[[], None],
        offline: Callable[[], None],
        truncated: Callable[[Offset], None],
        start_moved: Callable[[], None],
    ) -> None:
        """See `ReplicaLog.observe`."""
        self._state.on_start_moved = start_moved
        self.flusher.on_fsynced = fsynced
        self._health.on_offline = offline
        self.truncator.on_truncated = truncated

    def begin_flush(self) -> None:
        """Begin a group fsync, unless one is running; its end is reported to the callbacks of `observe`."""
        self.flusher.begin_flush()

    def flush(self, up_to: Offset | None = None) -> None:
        """Fsync everything below `up_to` (default: all), indexes included: `LogFlusher.flush`. Blocks."""
        self.flusher.flush(up_to)

    async def flush_async(self, up_to: Offset | None = None) -> None:
        """Wait until every record below `up_to` (default: log end) is on disk: `LogFlusher.flush_async`."""
        await self.flusher.flush_async(up_to)

    async def flush_all_async(self) -> None:
        """Like `flush`, with the waiting in a thread. Raises `KafkaError`."""
        await self.flusher.flush_all_async()

    # The end

    def _closer(self) -> LogCloser:
        return LogCloser(self.topic_partition, self._random, self._parts, self.recovery, self._writer, self.truncator)

    async def close_async(self) -> None:
        """`close`, with the fsyncs in a thread. Raises `KafkaError`."""
        await self._closer().close_async()

    def close(self) -> None:
        """Write what a clean start needs (indexes, producer snapshot), fsync, close the files. Raises `KafkaError`."""
        self._closer().close()

    def rename_for_deletion(self, suffix: str = "delete") -> None:
        """Rename the directory to `<topic>-<partition>.<uuid>-<suffix>` and close; readers keep their slices. Raises
        `KafkaError`."""
        self._closer().rename_for_deletion(suffix)
