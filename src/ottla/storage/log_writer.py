"""The part of a log that writes: checked batches go into the active segment, which is rolled when it is full.

What belongs to an append comes with it: leader epochs, producers, the end of the log.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.errors import KafkaError
from ottla.model import Buffer, Millis, Offset
from ottla.protocol.record_batch import BatchHeader
from ottla.storage.leader_epochs import LeaderEpochs
from ottla.storage.log_flusher import LogFlusher
from ottla.storage.log_health import LogHealth
from ottla.storage.log_state import LogState
from ottla.storage.producer_batches import note_producers
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.segment import RollLimits, Segment
from ottla.storage.segment_files import TIME_INDEX
from ottla.storage.segment_list import SegmentList


class LogWriter:
    """Whoever calls it has validated the batches and found the log open."""

    __slots__ = ("_epochs", "_flusher", "_health", "_producer_state", "_segments", "_state", "limits", "on_unflushed")

    def __init__(
        self,
        state: LogState,
        health: LogHealth,
        segments: SegmentList,
        flusher: LogFlusher,
        epochs: LeaderEpochs,
        producer_state: ProducerStateManager,
        limits: RollLimits,
    ) -> None:
        self._state = state
        self._health = health
        self._segments = segments
        self._flusher = flusher
        self._epochs = epochs
        self._producer_state = producer_state
        self.limits = limits
        self.on_unflushed: Callable[[], None] | None = None
        """Called after each append of a log that has `flush.ms`."""

    def append(
        self, buffer: Buffer, size: int, headers: list[BatchHeader], max_timestamp: Millis, now_ms: Millis
    ) -> None:
        """Write checked batches and take them into account. Raises `KafkaError`."""
        first, last = headers[0], headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        state, segments = self._state, self._segments
        state.now_ms = now_ms
        segment = segments.active
        try:
            if segment.should_roll(size, last_offset, max_timestamp, now_ms, self.limits):
                self.roll(first.base_offset)
                segment = segments.active
            if last.leader_epoch != self._epochs.noted_epoch:
                self._note_epochs(headers)
        except OSError as error:
            raise self._health.refuse(error) from error
        position = segment.size
        try:
            segment.append(buffer, headers)
        except OSError as error:
            raise self._roll_back(segment, position, error) from error
        state.log_end = last_offset + 1
        segments.size_bytes += size
        if first.producer_id >= 0 or len(headers) > 1:
            try:
                note_producers(self._producer_state, segment, buffer, headers)
            except OSError as error:  # the transaction index; what it lacks comes back in recovery
                raise self._health.fail(error) from error
        self._producer_state.map_end_offset = last_offset + 1
        if self.on_unflushed is not None:
            self.on_unflushed()

    def _roll_back(self, segment: Segment, position: int, error: OSError) -> KafkaError:
        """Cut a write that failed half-way out of the file again, so that the next one follows whole batches."""
        try:
            segment.open().file.truncate(position)
        except OSError as second:
            return self._health.fail(second)
        return self._health.refuse(error)

    def _note_epochs(self, headers: list[BatchHeader]) -> None:
        """Written by the next full fsync; until then recovery finds the epochs in the batches."""
        epochs = self._epochs
        for header in headers:
            if header.leader_epoch != epochs.noted_epoch and header.leader_epoch >= 0:
                epochs.note(header.leader_epoch, header.base_offset)
                if not epochs.is_written:
                    self._flusher.write_later(epochs.path, epochs.encode)

    def roll(self, base_offset: Offset) -> None:
        """Start a new segment, unless the active one is empty and starts there already. Raises `OSError`."""
        old = self._segments.active
        if old.base_offset == base_offset and not old.size:
            return
        self.close_to_appends(old)
        self._segments.add(base_offset, self._state.now_ms)
        self._flusher.fsync_later(self._segments.directory)
        producers = self._producer_state
        producers.map_end_offset = base_offset
        snapshot = producers.take_snapshot(fsync=False)
        if snapshot is not None:
            self._flusher.fsync_later(snapshot)
        self._flusher.is_due = True

    def close_to_appends(self, segment: Segment) -> None:
        """Complete the indexes of a segment that gets no more records. Raises `OSError`."""
        before = segment.index_changes
        segment.close_to_appends()
        if segment.index_changes != before:  # the records may all be fsynced already
            self._flusher.fsync_later(segment.path(TIME_INDEX))
