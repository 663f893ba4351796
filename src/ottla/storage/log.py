"""One partition's log: append, read, look-up, truncation, retention and flushing (Kafka's `UnifiedLog`).

A log is a list of segments; the last one is active and takes the appends. Everything here is synchronous and runs on
the event loop, except `flush_async`, which waits for an fsync in a thread. Errors that clients see are `KafkaError`;
after a disk error that leaves the log's content in doubt every call raises KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import errno
import posixpath
import random as random_module
from collections.abc import Generator, Sequence
from functools import partial
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import NO_TIMESTAMP, Buffer, LeaderEpoch, Millis, Offset, TopicPartition
from ottla.protocol.record_batch import BatchHeader
from ottla.steps import at_once, without_pauses
from ottla.storage.append_info import AppendInfo
from ottla.storage.checkpoints import CorruptFile
from ottla.storage.config import LogConfig
from ottla.storage.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from ottla.storage.limits import limits_and_policy
from ottla.storage.partition_metadata import partition_metadata_path
from ottla.storage.producer_entry import Duplicate
from ottla.storage.producer_snapshot import read_end_marker
from ottla.storage.producer_state import (
    PRODUCER_ID_EXPIRATION_MS,
    SNAPSHOT_SUFFIX,
    ProducerStateManager,
)
from ottla.storage.reading import ReadableLog
from ottla.storage.recovery import (
    LoadedSegments,
    epochs_of_batches,
    load_segments,
    note_producer,
    replay_producers,
    segment_offset,
)
from ottla.storage.retention import count_deletable
from ottla.storage.segment import TIME_INDEX, ColdRead, LogSlice, Segment
from ottla.storage.segment_cache import SegmentCache
from ottla.storage.segment_list import Replacement, SegmentList
from ottla.storage.validation import CLIENT, REPLICATION, Origin, check_produce_version, validate

__all__ = ["AppendInfo", "ColdRead", "Log", "LogSlice"]

DIRECTORY_NAME_MAX = 255
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_RECORDS_UNCHECKED_VERSION = 7
"""From this Produce version on no codec is forbidden."""
_new = tuple.__new__


class Log(ReadableLog):
    """The log of one partition. `Log.load` makes it."""

    __slots__ = (
        "_flush_messages", "_high_watermark", "_latest_epoch", "_limits", "_policy", "_random", "_repaired",
        "cleaned_offset", "config", "epochs", "producer_state", "recovered_bytes",
        "topic_id", "truncated_bytes",
    )  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        cache: SegmentCache,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        random: random_module.Random,
        now_ms: Millis,
    ) -> None:
        segments = SegmentList(fs, cache, directory, config, random)
        super().__init__(fs, directory, topic_partition, segments, now_ms)
        self._random = random
        self.topic_id = topic_id
        self._high_watermark: Offset = 0
        """Between log start and log end; goes down only with a truncation."""
        self._latest_epoch: LeaderEpoch = -1
        self.recovered_bytes = 0
        """Read and checked when the log was loaded."""
        self.truncated_bytes = 0
        """Cut off then, as no whole, valid batches."""
        self._repaired = False
        self.cleaned_offset: Offset | None = None
        """Compacted up to here; None if it never was."""
        self.update_config(config)

    # Loading

    @staticmethod
    def loading(
        fs: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        *,
        log_start_offset: Offset = 0,
        recovery_point: Offset = 0,
        clean_shutdown: bool = False,
        cleaned_offset: Offset | None = None,
        now_ms: Millis,
        random: random_module.Random,
        producer_id_expiration_ms: Millis = PRODUCER_ID_EXPIRATION_MS,
        cache: SegmentCache | None = None,
    ) -> Generator[None, None, Log]:
        """Open the log in `directory`, creating it if need be, and recover it unless it was shut down cleanly.

        Gives way between pieces of a recovery. `recovery_point` is what the checkpoint says was synced. Raises
        `KafkaError`: KAFKA_STORAGE_ERROR when the disk fails, UNSUPPORTED_FOR_MESSAGE_FORMAT for logs written before
        Kafka 0.11.
        """
        log = Log(
            fs,
            SegmentCache() if cache is None else cache,
            directory,
            topic_partition,
            topic_id,
            config,
            random,
            now_ms,
        )
        try:
            if not fs.is_dir(directory):
                fs.makedirs(directory)
                log.sync_later(directory)
                log.sync_later(posixpath.dirname(directory))
            loaded = yield from load_segments(
                fs,
                directory,
                lambda base_offset, size: log._segments.open(base_offset, size, now_ms),
                log_start_offset=log_start_offset,
                recovery_point=recovery_point,
                clean_shutdown=clean_shutdown,
                contiguous=not config.compact and cleaned_offset is None,
            )
            log.cleaned_offset = cleaned_offset
            log._take_segments(loaded, log_start_offset, recovery_point, clean_shutdown)
            yield from log._load_epochs(loaded)
            if not clean_shutdown:
                log._doubt_files()
            yield from log._load_producers(loaded, clean_shutdown, producer_id_expiration_ms)
        except OSError as error:
            raise log._fail(error) from error
        return log

    load = staticmethod(without_pauses(loading))
    """The same without giving way."""

    def _take_segments(
        self, loaded: LoadedSegments, log_start_offset: Offset, recovery_point: Offset, clean_shutdown: bool
    ) -> None:
        segments = self._segments
        segments.take(loaded.segments)
        self._end = loaded.next_offset
        self.recovered_bytes = loaded.recovered_bytes
        self.truncated_bytes = loaded.truncated_bytes
        self._repaired = loaded.repaired
        if segments.items and self._end < log_start_offset:  # segment files were taken away from below us
            segments.drop_from(0, self._now_ms)
        if not segments.items:
            self._add_segment(log_start_offset)
            self._end = log_start_offset
        self.log_start_offset = max(log_start_offset, segments.bases[0])
        self._high_watermark = self.log_start_offset
        checked = loaded.recovered_bytes or loaded.truncated_bytes
        self.recovery_point = self._end if clean_shutdown and not checked else min(recovery_point, self._end)
        self.durable_offset = self.recovery_point
        self.needs_background_flush = self.recovery_point < self._end

    def _load_epochs(self, loaded: LoadedSegments) -> Generator[None, None, None]:
        try:
            self.epochs = LeaderEpochs(self._fs, self.directory)
        except CorruptFile:
            self._fs.remove(posixpath.join(self.directory, LEADER_EPOCH_CHECKPOINT))
            self.epochs = LeaderEpochs(self._fs, self.directory)
        if not self.epochs.entries and loaded.recovered_bytes < self._segments.size_bytes:
            # The file is gone or was damaged. The batches know as well, also those that were not checked.
            loaded.epochs = yield from epochs_of_batches(self._segments.items)
        latest = self.epochs.latest_epoch
        for epoch, offset in loaded.epochs:
            if epoch >= 0 and (latest is None or epoch > latest):
                self._note_epoch(epoch, offset)
                latest = epoch
        self.epochs.truncate_from_end(self._end)
        self.epochs.truncate_from_start(self.log_start_offset)
        self._latest_epoch = self._cached_epoch()

    def _doubt_files(self) -> None:
        """Let the next full sync include what the process that was killed may have written and not synced."""
        self.sync_later(self.directory)
        self.sync_later(posixpath.dirname(self.directory))
        self.sync_later(partition_metadata_path(self.directory))
        if self.epochs.entries:
            self.write_later(self.epochs.path, self.epochs.encode)

    def _cached_epoch(self) -> LeaderEpoch:
        latest = self.epochs.latest_epoch
        return -1 if latest is None else latest

    def _load_producers(
        self, loaded: LoadedSegments, clean_shutdown: bool, expiration_ms: Millis
    ) -> Generator[None, None, None]:
        names = loaded.names
        if not clean_shutdown:
            # The transaction index is rebuilt from where the snapshot ends, so it may not end above what was synced.
            for name in [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]:
                offset = segment_offset(name)
                if offset is not None and offset > self.recovery_point:
                    self._fs.remove(posixpath.join(self.directory, name))
                    names.remove(name)
        self.producer_state = state = ProducerStateManager(
            self._fs, self.directory, self.topic_partition, expiration_ms=expiration_ms, file_names=names
        )
        strays = set(state.snapshot_offsets) - set(self._segments.bases)
        if len(strays) > 1:
            state.remove_stray_snapshots(self._segments.bases)
        if clean_shutdown and not state.snapshot_offsets:
            state.map_end_offset = self._end  # a clean stop leaves none only where there were no producers
        else:
            yield from replay_producers(state, self._segments.items, self.log_start_offset, self._end, self._now_ms)

    def _add_segment(self, base_offset: Offset) -> None:
        self._segments.add(base_offset, self._now_ms)
        self.sync_later(self.directory)

    def update_config(self, config: LogConfig) -> None:
        """Follow the topic's settings from now on."""
        self.config = config
        self._limits, self._policy = limits_and_policy(config)
        self._flush_messages = config.flush_messages if config.flush_ms > 0 else 1
        self._segments.config = config
        if self._segments.items:
            self._segments.active.index_interval_bytes = config.index_interval_bytes

    # What the log is

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self._end}, {self.directory})"

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._end

    @property
    def high_watermark(self) -> Offset:
        """Records below it are committed. Setting it clamps to the log; it goes down only with a truncation."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: Offset) -> None:
        offset = min(offset, self._end)
        if offset > self._high_watermark:
            self._high_watermark = offset
            self.producer_state.on_high_watermark(offset)

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction below it is decided and committed: the bound of read_committed."""
        unstable = self.producer_state.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def last_append_ms(self) -> Millis:
        """When the log last heard of the time: at the latest append, load or retention check."""
        return self._now_ms

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self.epochs.latest_epoch

    # Appending

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: LeaderEpoch,
        *,
        now_ms: Millis,
        origin: Origin = CLIENT,
        request_version: int = 13,
    ) -> AppendInfo:
        """Validate, assign offsets and append. `records` should be writable: offsets are set in place, without a copy.

        Does not move the high watermark. Raises `KafkaError`: what validation and producer state refuse,
        RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR (also for a full disk, after which the log goes on).
        """
        if self._failure is not None or self._closed:
            raise self._storage_error()
        if request_version < _RECORDS_UNCHECKED_VERSION:
            check_produce_version(records, request_version)
        buffer, headers, max_timestamp, _, append_time = validate(
            records, self._policy, now_ms=now_ms, next_offset=self._end, leader_epoch=leader_epoch, origin=origin
        )
        size = len(buffer)
        if size > self._limits.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition}, which exceeds the "
                f"maximum configured segment size of {self._limits.segment_bytes}.",
            )
        first_offset = headers[0].base_offset
        if headers[0].producer_id >= 0 or len(headers) > 1:
            duplicate = self._check_producers(buffer, headers, origin)
            if duplicate is not None:
                return self._duplicate_info(duplicate, leader_epoch)
        self._append(buffer, size, headers, max_timestamp, now_ms)
        return _new(
            AppendInfo,
            (
                first_offset,
                self._end - 1,
                append_time,
                self.log_start_offset,
                max_timestamp,
                leader_epoch,
                size,
                len(headers),
                False,
                self._end - self.durable_offset >= self._flush_messages,
            ),
        )

    def append_as_follower(self, records: Buffer, *, now_ms: Millis) -> AppendInfo:
        """Append batches that a leader numbered; they start at or above the log end. Raises `KafkaError`."""
        self._check()
        buffer, headers, max_timestamp, _, _ = validate(
            records, self._policy, now_ms=now_ms, next_offset=self._end, leader_epoch=-1, origin=REPLICATION
        )
        if not headers:
            raise KafkaError(ErrorCode.corrupt_message, f"no whole batch to append to {self.topic_partition}")
        first, size = headers[0], len(buffer)
        if first.base_offset < self._end:
            raise KafkaError(
                ErrorCode.invalid_record,
                f"Unexpected offset in append to {self.topic_partition}. First offset {first.base_offset} is less than "
                f"the next offset {self._end}.",
            )
        self._append(buffer, size, headers, max_timestamp, now_ms)
        needs_flush = self._end - self.durable_offset >= self._flush_messages
        return AppendInfo(
            first.base_offset,
            self._end - 1,
            NO_TIMESTAMP,
            self.log_start_offset,
            max_timestamp,
            headers[-1].leader_epoch,
            size,
            len(headers),
            False,
            needs_flush,
        )

    def _check_producers(self, buffer: Buffer, headers: list[BatchHeader], origin: Origin) -> Duplicate | None:
        """The batch that a producer repeats. Raises `KafkaError` for what its state refuses."""
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                size = header.size
                marker = read_end_marker(buffer[position : position + size]) if header.is_control else None
                duplicate = self.producer_state.check(header, origin=origin, marker=marker)
                if duplicate is not None:
                    return duplicate
            position += header.size
        return None

    def _duplicate_info(self, duplicate: Duplicate, leader_epoch: LeaderEpoch) -> AppendInfo:
        # The original may still be on its way to the disk, and the retry must not be answered before it is there.
        waits = self._flush_messages == 1 and duplicate.last_offset >= self.durable_offset
        return AppendInfo(
            duplicate.base_offset,
            duplicate.last_offset,
            duplicate.timestamp,
            self.log_start_offset,
            duplicate.timestamp,
            leader_epoch,
            0,
            0,
            True,
            waits,
        )

    def _append(
        self, buffer: Buffer, size: int, headers: list[BatchHeader], max_timestamp: Millis, now_ms: Millis
    ) -> None:
        """Write checked batches and take them into account."""
        first, last = headers[0], headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        self._now_ms = now_ms
        segment = self._segments.active
        try:
            if segment.should_roll(size, last_offset, max_timestamp, now_ms, self._limits):
                self._roll(first.base_offset)
                segment = self._segments.active
            if last.leader_epoch != self._latest_epoch:
                self._assign_epochs(headers)
        except OSError as error:
            raise self._refuse(error) from error
        position = segment.size
        try:
            segment.append(buffer, headers)
        except OSError as error:
            raise self._take_back(segment, position, error) from error
        self._end = last_offset + 1
        self._segments.size_bytes += size
        if first.producer_id >= 0 or len(headers) > 1:
            self._update_producers(segment, buffer, headers)
        else:
            self.producer_state.map_end_offset = last_offset + 1

    def _update_producers(self, segment: Segment, buffer: Buffer, headers: list[BatchHeader]) -> None:
        position = 0
        try:
            for header in headers:
                if header.producer_id >= 0:
                    note_producer(self.producer_state, segment, header, partial(_part, buffer, position, header.size))
                position += header.size
        except OSError as error:  # the transaction index; what it lacks comes back in recovery
            raise self._fail(error) from error
        self.producer_state.map_end_offset = self._end

    def _assign_epochs(self, headers: list[BatchHeader]) -> None:
        for header in headers:
            epoch = header.leader_epoch
            if epoch != self._latest_epoch and epoch >= 0:
                self._note_epoch(epoch, header.base_offset)

    def _note_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Written by the next full sync; until then recovery finds the epoch in the batches."""
        self.epochs.assign(epoch, start_offset)
        if not self.epochs.is_written:
            self.write_later(self.epochs.path, self.epochs.encode)
        self._latest_epoch = self._cached_epoch()

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """Begin `epoch` at the log end, as a new leader does; its first append sees to it that it is written down.

        So the start of a node with thousands of idle partitions writes nothing.
        """
        self.epochs.assign(epoch, self._end)

    def _refuse(self, error: OSError) -> KafkaError:
        """An error before anything was appended: a full disk may have room again for the next attempt."""
        if error.errno in _NO_SPACE:
            return KafkaError(ErrorCode.kafka_storage_error, f"no space for {self.topic_partition}: {error}")
        return self._fail(error)

    def _take_back(self, segment: Segment, position: int, error: OSError) -> KafkaError:
        """Cut a write that failed half-way out of the file again, so that the next one follows whole batches."""
        try:
            segment.open().file.truncate(position)
        except OSError as second:
            return self._fail(second)
        return self._refuse(error)

    def roll(self) -> None:
        """Start a new segment now, unless the active one is empty. Raises `KafkaError`."""
        self._check()
        try:
            self._roll(self._end)
        except OSError as error:
            raise self._refuse(error) from error

    def _roll(self, base_offset: Offset) -> None:
        old = self._segments.active
        if old.base_offset == base_offset and not old.size:
            return
        self._close_to_appends(old)
        self._add_segment(base_offset)
        state = self.producer_state
        state.map_end_offset = base_offset
        snapshot = state.take_snapshot(sync=False)
        if snapshot is not None:
            self.sync_later(snapshot)
        self.needs_background_flush = True

    def _close_to_appends(self, segment: Segment) -> None:
        before = segment.index_changes
        segment.close_to_appends()
        if segment.index_changes != before:  # the records may all be synced already
            self.sync_later(segment.path(TIME_INDEX))

    # Leader epochs

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch of the record at `offset`, -1 if unknown."""
        epoch = self.epochs.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """(largest epoch <= `epoch`, its end offset), (-1, -1) if unknown (KIP-101, KIP-279)."""
        return self.epochs.end_offset_for(epoch, self._end)

    # Shortening

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log start up to `offset` (-1: the high watermark); returns the new log start.

        Raises `KafkaError`: OFFSET_OUT_OF_RANGE above the high watermark, POLICY_VIOLATION if only compacted.
        """
        self._check()
        if not self.config.delete:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"Records of partition {self.topic_partition} can not be deleted due to the configured policy",
            )
        target = self._high_watermark if offset == -1 else offset
        if target < 0 or target > self._high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"The offset {offset} is out of range: partition {self.topic_partition} ends at {self._high_watermark}",
            )
        self.advance_log_start(target)
        return self.log_start_offset

    def advance_log_start(self, offset: Offset) -> None:
        """Move the log start up; whole segments below it go with the next retention check. Raises `KafkaError`."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self._high_watermark = max(self._high_watermark, offset)
        try:
            self.epochs.truncate_from_start(offset)
        except OSError as error:
            raise self._refuse(error) from error
        self.producer_state.on_log_start_offset(offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the records from `offset` on. Raises `KafkaError`."""
        self._check()
        try:
            if offset >= self._end:
                self.epochs.truncate_from_end(self._end)
            elif offset < self._segments.bases[0]:
                self._start_afresh(offset)
            else:
                self._truncate(offset)
        except OSError as error:
            raise self._fail(error) from error
        self._latest_epoch = self._cached_epoch()

    def _truncate(self, offset: Offset) -> None:
        self._truncations += 1
        segments = self._segments
        segments.drop_from(segments.index_of(offset) + 1, self._now_ms)
        segments.active.truncate_to(offset)
        segments.recount()
        self._end = offset
        self.epochs.truncate_from_end(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._lower_bounds(offset)
        at_once(
            replay_producers(self.producer_state, self._segments.items, self.log_start_offset, offset, self._now_ms)
        )

    def _lower_bounds(self, offset: Offset) -> None:
        self._high_watermark = max(min(self._high_watermark, offset), self.log_start_offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.durable_offset = min(self.durable_offset, offset)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything; the log starts and ends at `offset`. Raises `KafkaError`."""
        self._check()
        try:
            self._start_afresh(offset)
        except OSError as error:
            raise self._fail(error) from error

    def _start_afresh(self, offset: Offset) -> None:
        self._truncations += 1
        self._segments.drop_from(0, self._now_ms)
        self._add_segment(offset)
        self._end = self.log_start_offset = offset
        self.epochs.clear()
        self._latest_epoch = -1
        self.producer_state.truncate_fully_and_start_at(offset)
        self._high_watermark = offset
        self.recovery_point = self.durable_offset = offset
        if self.cleaned_offset is not None:
            self.cleaned_offset = offset

    def delete_old_segments(self, now_ms: Millis) -> int:
        """Apply retention; returns the number of segments dropped. Their files go after `file.delete.delay.ms`.

        Raises `KafkaError`.
        """
        self._check()
        self._now_ms = now_ms
        try:
            count = count_deletable(
                self._segments.items,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self._high_watermark,
                log_end_offset=self._end,
                now_ms=now_ms,
            )
            if not count:
                return 0
            if count == len(self._segments.items):
                self._roll(self._end)
                # Were the new file's name lost with a power failure, the log would start over at an old offset.
                self._fs.fsync_dir(self.directory)
            bases = self._segments.bases[:count]
            self.advance_log_start(self._segments.bases[count])
            self._segments.drop_oldest(count, now_ms)
            self._drop_snapshots(bases)
        except OSError as error:
            raise self._refuse(error) from error
        return count

    def _drop_snapshots(self, bases: list[Offset]) -> None:
        for base in bases:
            path = self.producer_state.mark_snapshot_for_deletion(base)
            if path is not None:
                self.garbage.append((self._now_ms + self.config.file_delete_delay_ms, path))

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Replacement], now_ms: Millis) -> None:
        """Put compacted segments, whose `.cleaned` files are synced, in the place of sealed ones. Raises `KafkaError`.

        Slices of the old segments go on; their files are removed after `file.delete.delay.ms`.
        """
        self._check()
        self._now_ms = max(self._now_ms, now_ms)
        try:
            self._segments.replace(old, new, now_ms)
            self.sync_later(self.directory)
            kept = {each.base_offset for each in new}
            self._drop_snapshots([each.base_offset for each in old if each.base_offset not in kept])
        except OSError as error:
            raise self._fail(error) from error

    # The end

    def close(self) -> None:
        """Write what a clean start needs (indexes, producer snapshot), sync, close the files. Raises `KafkaError`."""
        if self._closed:
            return
        if self._failure is None:
            try:
                self._close_to_appends(self._segments.active)
                state = self.producer_state
                if state.snapshot_offsets or not state.is_empty:
                    state.take_snapshot(sync=not state.is_empty)
                if self._end or self._repaired or self._truncations:  # an empty log that gets lost is made again
                    self.flush()
            except OSError as error:
                raise self._fail(error) from error
        self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        self._segments.close()

    def rename_for_deletion(self, suffix: str = "delete") -> None:
        """Rename the directory to `<topic>-<partition>.<uuid>-<suffix>` and close; readers keep their slices.

        Raises `KafkaError`.
        """
        topic, partition = self.topic_partition
        ending = f"-{partition}.{self._random.getrandbits(128):032x}-{suffix}"
        parent = posixpath.dirname(self.directory)
        target = posixpath.join(parent, topic[: DIRECTORY_NAME_MAX - len(ending)] + ending)
        self._let_go()
        try:
            self._fs.rename(self.directory, target)
        except OSError as error:
            raise self._fail(error) from error
        self.directory = self._segments.directory = target
        self.garbage.clear()

    def delete(self) -> None:
        """Remove the directory. Blocks; run it off the loop. Raises `OSError`."""
        self._let_go()
        self._fs.rmtree(self.directory)


def _part(buffer: Buffer, position: int, size: int) -> Buffer:
    return buffer[position : position + size]
