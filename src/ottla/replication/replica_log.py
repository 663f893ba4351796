"""A log as replication, and those who reach it through a partition, see it; `ottla.storage.log.log.Log` is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.model import LeaderEpoch, Millis, Offset, TimestampAndOffset
from ottla.storage.config import LogConfig


class Appended(Protocol):
    """The result of an append, and the token to wait for its commit with (`Partition.wait`). For a duplicate these are
    the numbers of the original append."""

    @property
    def first_offset(self) -> Offset: ...
    @property
    def last_offset(self) -> Offset: ...
    @property
    def log_append_time_ms(self) -> Millis: ...
    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def size_bytes(self) -> int:
        """0 for a duplicate."""

    @property
    def needs_flush(self) -> bool:
        """The topic asks for an fsync before the answer."""


class Slice(Protocol):
    """Batches that still lie in a file: a connection sends them with sendfile, or reads them where it cannot."""

    @property
    def file(self) -> Any: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    def read(self) -> bytes: ...


class ReplicaLog(Protocol):
    """The log of one replica. Errors are `KafkaError`."""

    high_watermark: Offset
    """Records below it are committed. Only the partition sets it; goes down only with a truncation."""
    cleaned_offset: Offset | None
    """Compacted up to here, so that offsets may be missing; None where none are."""

    config: LogConfig

    @property
    def is_open(self) -> bool:
        """Neither closed nor offline."""

    @property
    def health(self) -> Any:
        """Its `suspect` is told by those who meet damage in what they read."""

    @property
    def failure(self) -> OSError | None:
        """The disk error after which the log refuses everything."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def safe_end_offset(self) -> Offset:
        """How far the log is as safe as the topic asks: the log end while fewer than `flush.messages` records are not
        on disk, else what is on disk. So with 1 only what is fsynced counts."""

    @property
    def last_stable_offset(self) -> Offset: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def segments(self) -> Sequence[Any]: ...
    @property
    def producer_state(self) -> Any: ...

    def observe(
        self,
        fsynced: Callable[[], None],
        offline: Callable[[], None],
        truncated: Callable[[Offset], None],
        start_moved: Callable[[], None],
    ) -> None:
        """Have `fsynced` called whenever more may be on disk, `offline` once the log can be used no more, `truncated`
        when records from an offset on are gone, and `start_moved` when those below the log start are."""

    def begin_flush(self) -> None:
        """See to it that an fsync of what is in the log now begins soon; it serves every append of the moment."""

    async def flush_async(self, up_to: Offset | None = None) -> None:
        """Wait until everything below `up_to` (default: the log end) is on disk."""

    def append_as_leader(
        self,
        records: Any,
        leader_epoch: LeaderEpoch,
        *,
        now_ms: Millis,
        origin: Any = ...,
        request_version: int = ...,
        guard: int = ...,
        transaction_version: int = ...,
    ) -> Appended: ...
    def find_duplicate(self, records: Any, leader_epoch: LeaderEpoch) -> Appended | None:
        """The result for records that are in the log already; None for others."""

    def append_as_follower(self, records: Any, *, now_ms: Millis) -> Appended: ...
    def read(
        self, offset: Offset, max_bytes: int, up_to: Offset, min_one_batch: bool = True, nowait: bool = False
    ) -> Slice | None: ...
    def holds_nothing(self, offset: Offset, high_watermark: Offset, log_start: Offset) -> bool:
        """Whether a reader at `offset` gets neither records nor an error, and both watermarks are still these. False in
        doubt."""

    def delete_records(self, offset: Offset) -> Offset: ...
    def advance_log_start(self, offset: Offset) -> None: ...
    @property
    def latest_epoch(self) -> LeaderEpoch | None: ...
    def assign_epoch(self, epoch: LeaderEpoch) -> None: ...
    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]: ...
    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch: ...
    def offset_for_timestamp(self, timestamp_ms: Millis, start: Offset = 0) -> TimestampAndOffset | None: ...
    def offset_of_max_timestamp(self, start: Offset = 0) -> TimestampAndOffset | None: ...
    def aborted_transactions(self, start: Offset, end: Offset, part: Any = None) -> Sequence[Any]: ...
