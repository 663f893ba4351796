"""One partition's log: append, read, look-up, truncation, retention and flushing (Kafka's `UnifiedLog`).

A log is a list of segments; the last one is active and takes the appends. Everything here is synchronous and runs on the
event loop, except `flush_async`, which waits for an fsync in a thread. Errors that clients see are `KafkaError`; after a
disk error that leaves the log's content in doubt every call raises KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import random as random_module
from typing import Any, NamedTuple
from uuid import UUID

from ottla.filesystem import Buffer, File, FileSystem
from ottla.model import LeaderEpoch, Millis, Offset, TopicPartition
from ottla.storage.config import LogConfig


class AppendInfo(NamedTuple):
    """What an append did. For a duplicate these are the numbers of the original append."""

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: Millis
    """The broker's time when the topic uses LogAppendTime, else -1."""
    log_start_offset: Offset
    max_timestamp_ms: Millis
    leader_epoch: LeaderEpoch
    size_bytes: int
    """Bytes written; 0 for a duplicate."""
    batch_count: int
    is_duplicate: bool
    needs_flush: bool
    """`flush.messages` or `flush.ms` asks for a sync before the answer: await `flush_async(last_offset + 1)`
    and only then raise the high watermark and answer."""


class LogSlice:
    """A range of a segment's file: whole batches from `position` on. Keeps the file open while it lives, even deleted.

    `first_offset` is the base offset of the first batch, which may lie below the offset that was asked for.
    """

    __slots__ = ("_handle", "first_offset", "length", "position")

    @property
    def file(self) -> File: ...
    def read(self) -> bytes: ...
    def read_nowait(self) -> bytes | None:
        """The bytes, or None where they are not wholly in the page cache."""
        ...


class Log:
    """The log of one partition."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    directory: str
    config: LogConfig
    log_start_offset: Offset
    high_watermark: Offset
    """Settable; the setter clamps it into [log_start_offset, log_end_offset]."""
    recovery_point: Offset
    """Everything below is on disk, indexes included."""
    durable_offset: Offset
    """Everything below is on disk as far as the records go; at least `recovery_point`."""
    size_bytes: int
    producer_state: Any

    @classmethod
    def load(
        cls,
        fs: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        *,
        log_start_offset: Offset = 0,
        recovery_point: Offset = 0,
        clean_shutdown: bool = False,
        now_ms: Millis,
        random: random_module.Random,
        producer_id_expiration_ms: Millis = 86_400_000,
    ) -> Log:
        """Open the log in `directory`, creating it if need be, and recover it unless it was shut down cleanly.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR) when the disk fails.
        """
        raise NotImplementedError

    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def last_stable_offset(self) -> Offset: ...
    @property
    def latest_epoch(self) -> LeaderEpoch | None: ...

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: LeaderEpoch,
        *,
        now_ms: Millis,
        origin: Any = None,
        request_version: int = 13,
    ) -> AppendInfo:
        """Validate, assign offsets and append. `records` should be writable: offsets are set in place, without a copy.

        `origin` is validation's (client by default). Raises `KafkaError`. Does not move the high watermark.
        """
        raise NotImplementedError

    def append_as_follower(self, records: Buffer, *, now_ms: Millis) -> AppendInfo:
        """Append batches that a leader numbered; offsets must start at or above the log end."""
        raise NotImplementedError

    def read(self, offset: Offset, max_bytes: int, *, up_to: Offset, min_one_batch: bool = True) -> LogSlice | None:
        """The batches from the one that holds `offset` (or the next existing one), below `up_to`, at most `max_bytes`.

        Always whole batches. With `min_one_batch` the first batch comes even when it is larger than `max_bytes`.
        None when there is nothing to read below `up_to` (or nothing fits). Raises `KafkaError` OFFSET_OUT_OF_RANGE
        outside [log_start_offset, log_end_offset].
        """
        raise NotImplementedError

    def aborted_transactions(self, start: Offset, end: Offset) -> list[Any]:
        """Aborted transactions (producer_id, first_offset) that overlap [start, end), for read_committed."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: Millis) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record at or after the log start whose time stamp is at least `timestamp_ms`."""
        raise NotImplementedError

    def offset_of_max_timestamp(self) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record with the largest time stamp (ListOffsets -3)."""
        raise NotImplementedError

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch of the record at `offset`, -1 if unknown."""
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """(largest epoch <= `epoch`, its end offset), (-1, -1) if unknown (KIP-101, KIP-279)."""
        raise NotImplementedError

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """Record that `epoch` starts at the log end, as a new leader does."""
        raise NotImplementedError

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log start up to `offset` (-1: the high watermark); returns the new log start.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE above the high watermark, POLICY_VIOLATION if only compacted.
        """
        raise NotImplementedError

    def truncate_to(self, offset: Offset) -> None: ...
    def truncate_fully_and_start_at(self, offset: Offset) -> None: ...
    def roll(self) -> None:
        """Start a new segment now, unless the active one is empty."""
        ...

    def flush(self) -> None:
        """Sync everything appended so far, indexes included, and move the recovery point. Blocks."""
        ...

    async def flush_async(self, up_to: Offset | None = None) -> None:
        """Wait until every record below `up_to` (default: log end) is on disk. One fsync serves all who wait."""
        ...

    def delete_old_segments(self, now_ms: Millis) -> int:
        """Apply retention; returns the number of segments dropped. Their files go after `file.delete.delay.ms`."""
        raise NotImplementedError

    def update_config(self, config: LogConfig) -> None: ...
    def close(self) -> None:
        """Write what a clean start needs (indexes, producer snapshot), sync, and close the files."""
        ...

    def rename_for_deletion(self) -> None:
        """Rename the directory to `<topic>-<partition>.<uuid>-delete` and close; readers keep their slices."""
        ...

    def delete(self) -> None:
        """Remove the directory. Blocks; run it off the loop."""
        ...
