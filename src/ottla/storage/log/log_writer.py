"""The part of a log that writes: checked batches go into the active segment, which is rolled when it is full.

What belongs to an append comes with it: leader epochs, producers, the end of the log.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.errors import KafkaError
from ottla.model import Buffer, LeaderEpoch, Millis, Offset
from ottla.protocol.records.record_batch import LOG_OVERHEAD, BatchHeader, unpack_header
from ottla.storage.log.log_health import NO_DESCRIPTOR
from ottla.storage.log.log_parts import LogParts
from ottla.storage.log.stamp import Stamped
from ottla.storage.producers.producer_batches import note_producers
from ottla.storage.segments.index_file import GAP_IN_SEGMENT_MAX
from ottla.storage.segments.segment import RollLimits, Segment
from ottla.storage.segments.segment_files import LOG, TIME_INDEX


class LogWriter:
    """Writes a log. The caller has validated the batches and found the log open."""

    __slots__ = ("_epochs", "_flusher", "_health", "_producer_state", "_segments", "_state", "limits", "on_unflushed")

    def __init__(self, parts: LogParts, limits: RollLimits) -> None:
        _, self._state, self._health, self._segments, self._flusher, self._epochs, self._producer_state = parts
        self.limits = limits
        self.on_unflushed: Callable[[], None] | None = None
        """Called after each append of a log that has `flush.ms`."""

    def append(
        self, buffer: Buffer, size: int, headers: list[BatchHeader], max_timestamp: Millis, now_ms: Millis
    ) -> None:
        """Write checked batches and take them into account. Raises `KafkaError`."""
        first, last = headers[0], headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        segment = self._segment_for(size, first.base_offset, last_offset, max_timestamp, now_ms)
        if last.leader_epoch != self._epochs.noted_epoch:
            self._note_epochs(headers)
        self._write(segment, buffer)
        for header in headers:
            base_offset = header.base_offset
            batch_size = header.batch_length + LOG_OVERHEAD
            segment.note_batch(base_offset, base_offset + header.last_offset_delta, batch_size, header.max_timestamp)
        self._written(size, last_offset + 1)
        if first.producer_id >= 0 or len(headers) > 1:
            self._note_producers(segment, buffer, headers)
        self._producer_state.map_end_offset = last_offset + 1
        if self.on_unflushed is not None:
            self.on_unflushed()

    def append_stamped(
        self,
        buffer: Buffer,
        stamped: Stamped,
        headers: list[BatchHeader] | None,
        leader_epoch: LeaderEpoch,
        now_ms: Millis,
    ) -> None:
        """The same for one batch; `headers` has its header where it is of a producer that has an id."""
        size, last_offset = stamped.size, stamped.last_offset
        segment = self._segment_for(size, stamped.base_offset, last_offset, stamped.max_timestamp, now_ms)
        if leader_epoch != self._epochs.noted_epoch:
            self._note_epochs([unpack_header(buffer)])
        self._write(segment, buffer)
        segment.note_batch(stamped.base_offset, last_offset, size, stamped.max_timestamp)
        self._written(size, last_offset + 1)
        if headers is not None:
            self._note_producers(segment, buffer, headers)
        self._producer_state.map_end_offset = last_offset + 1
        if self.on_unflushed is not None:
            self.on_unflushed()

    def _segment_for(
        self, size: int, base_offset: Offset, last_offset: Offset, max_timestamp: Millis, now_ms: Millis
    ) -> Segment:
        """The segment that batches go to, a new one if they have to. Raises `KafkaError`."""
        self._state.now_ms = now_ms
        segment = self._segments.active
        try:
            if not segment.should_roll(size, last_offset, max_timestamp, now_ms, self.limits):
                return segment
            self.roll(self._base_before(base_offset))
        except OSError as error:
            raise self._health.refuse(error) from error
        return self._segments.active

    def _base_before(self, base_offset: Offset) -> Offset:
        """Where a segment begins whose first batch has this offset: at the log end, so that a gap that a compacted
        leader has is inside the file (Kafka leaves it between two files, where it looks like a loss)."""
        log_end = self._state.log_end
        return log_end if base_offset - log_end < GAP_IN_SEGMENT_MAX else base_offset

    def _write(self, segment: Segment, buffer: Buffer) -> None:
        position = segment.size
        try:
            segment.write(buffer)
        except OSError as error:
            raise self._roll_back(segment, position, error) from error

    def _written(self, size: int, log_end: Offset) -> None:
        self._state.log_end = log_end
        self._segments.size_bytes += size

    def _note_producers(self, segment: Segment, buffer: Buffer, headers: list[BatchHeader]) -> None:
        try:
            note_producers(self._producer_state, segment, buffer, headers)
        except OSError as error:  # the transaction index; what it lacks comes back in recovery
            raise self._health.fail(error) from error

    def _roll_back(self, segment: Segment, position: int, error: OSError) -> KafkaError:
        """Cut a write that failed half-way out of the file again, so that the next one follows whole batches. Until
        that is fsynced a power failure may bring it back, at the end of a segment that gets no more records."""
        if error.errno in NO_DESCRIPTOR:  # the file could not be opened: nothing was written
            return self._health.refuse(error)
        try:
            segment.open().file.truncate(position)
        except OSError as second:
            return self._health.fail(second)
        self._flusher.fsync_later(segment.path(LOG))
        return self._health.refuse(error)

    def _note_epochs(self, headers: list[BatchHeader]) -> None:
        """Written by the next full fsync; until then recovery finds the epochs in the batches."""
        epochs = self._epochs
        try:
            for header in headers:
                if header.leader_epoch != epochs.noted_epoch and header.leader_epoch >= 0:
                    epochs.note(header.leader_epoch, header.base_offset)
                    if not epochs.is_written:
                        self._flusher.write_later(epochs.path, epochs.encode)
        except OSError as error:
            raise self._health.refuse(error) from error

    def roll(self, base_offset: Offset) -> None:
        """Start a new segment, unless the active one is empty and starts there already. Raises `OSError`."""
        old = self._segments.active
        if old.base_offset == base_offset and not old.size:
            return
        if self._segments.config.compact or self._state.cleaned is not None:
            self._segments.mark_gaps()
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
