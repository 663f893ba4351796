"""What readers ask of a log: batches from an offset, look-ups by time stamp, aborted transactions.

The part of `Log` that changes nothing. Cleaning and retention may put other segments in place between two calls; a
slice that was given out keeps its own file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import LeaderEpoch, Millis, Offset, TopicPartition
from ottla.storage.segment import LogSlice
from ottla.storage.segment_list import SegmentList
from ottla.storage.syncing import SyncedLog
from ottla.storage.transaction_index import AbortedTransaction

T = TypeVar("T")


class ReadableLog(SyncedLog):
    """Segments with a beginning, which may lie inside the first of them."""

    __slots__ = ("log_start_offset",)

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        segments: SegmentList,
        now_ms: Millis,
    ) -> None:
        super().__init__(fs, directory, topic_partition, segments, now_ms)
        self.log_start_offset: Offset = 0

    def read(
        self, offset: Offset, max_bytes: int, *, up_to: Offset, min_one_batch: bool = True, nowait: bool = False
    ) -> LogSlice | None:
        """The batches from the one that holds `offset` (or the next existing one), below `up_to`, at most `max_bytes`.

        Always whole batches of one segment. With `min_one_batch` the first batch comes even when it is larger than
        `max_bytes`. None when there is nothing to read below `up_to`, or nothing fits. Raises `KafkaError`
        OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset], CORRUPT_MESSAGE; with `nowait` also `ColdRead`
        rather than waiting for the disk in the look-up (the slice itself may still be cold).
        """
        if self._failure is not None or self._closed:
            raise self._storage_error()
        end = self._end
        if offset < self.log_start_offset or offset > end:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have log "
                f"segments in the range {self.log_start_offset} to {end}.",
            )
        if offset >= up_to or offset == end:
            return None
        try:
            return self._segments.read(
                offset, max_bytes, up_to=up_to, end=end, min_one_batch=min_one_batch, nowait=nowait
            )
        except OSError as error:
            raise self._fail(error) from error

    def aborted_transactions(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [start, end), for read_committed. Raises `KafkaError`."""
        return self._look_up(lambda: self._segments.aborted_transactions(start, end))

    def offset_for_timestamp(self, timestamp_ms: Millis) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record from the log start on with a time stamp of at least `timestamp_ms`. Raises `KafkaError`."""
        return self._look_up(lambda: self._segments.find_timestamp(timestamp_ms, self.log_start_offset))

    def offset_of_max_timestamp(self) -> tuple[Millis, Offset, LeaderEpoch] | None:
        """The first record with the largest time stamp (ListOffsets -3). Raises `KafkaError`."""
        return self._look_up(lambda: self._segments.find_max_timestamp(self.log_start_offset))

    def _look_up(self, look: Callable[[], T]) -> T:
        self._check()
        try:
            return look()
        except OSError as error:
            raise self._fail(error) from error
