"""What takes segments out of a log or exchanges them: the log start, retention, and what compaction puts in place.

Segments, leader epochs, producer snapshots and offsets follow each other in an order that a crash may interrupt
anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, Offset, TopicPartition
from ottla.storage.log.deletable_segments import count_deletable
from ottla.storage.log.log_parts import LogParts
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_list import Replacement


class SegmentDeletion:
    """The part of a `Log` that takes away. `roll` starts a new segment at the log end."""

    __slots__ = ("_epochs", "_flusher", "_fs", "_health", "_producer_state", "_roll", "_segments", "_state")

    def __init__(self, parts: LogParts, roll: Callable[[Offset], None]) -> None:
        self._fs, self._state, self._health, self._segments, self._flusher, self._epochs, self._producer_state = parts
        self._roll = roll

    def delete_records(self, offset: Offset, key: TopicPartition) -> None:
        """`Log.delete_records`."""
        self._health.check()
        self.advance_log_start(self._new_start(offset, key))

    def _new_start(self, offset: Offset, key: TopicPartition) -> Offset:
        if not self._segments.config.delete:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"Records of partition {key} can not be deleted due to the configured policy",
            )
        high_watermark = self._state.high_watermark
        target = high_watermark if offset == -1 else offset
        if target < 0 or target > high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"The offset {offset} is out of range: partition {key} ends at {high_watermark}",
            )
        return target

    def advance_log_start(self, offset: Offset) -> None:
        """`Log.advance_log_start`."""
        try:
            self._advance_log_start(offset)
        except OSError as error:
            raise self._health.refuse(error) from error

    def _advance_log_start(self, offset: Offset) -> None:
        if offset <= self._state.log_start:
            return
        self._state.advance_log_start(offset)
        self._epochs.truncate_from_start(offset)
        self._producer_state.on_log_start_offset(offset)

    def delete_old_segments(self, now_ms: Millis) -> int:
        """`Log.delete_old_segments`."""
        self._health.check()
        self._state.now_ms = now_ms
        try:
            return self._delete_old_segments()
        except OSError as error:
            raise self._health.refuse(error) from error

    def _delete_old_segments(self) -> int:
        state, segments = self._state, self._segments
        count = count_deletable(
            segments.items,
            segments.config,
            log_start_offset=state.log_start,
            high_watermark=state.high_watermark,
            log_end_offset=state.log_end,
            now_ms=state.now_ms,
        )
        if not count:
            return 0
        if count == len(segments.items):
            if not self._producer_state.is_empty:
                self._producer_state.take_snapshot()  # nothing else will say whose retry is a duplicate
            self._roll(state.log_end)
            # Were the new file's name lost with a power failure, the log would start over at an old offset.
            self._fs.fsync_dir(segments.directory)
        bases = segments.bases[:count]
        self._advance_log_start(segments.bases[count])
        segments.drop_oldest(count, state.now_ms)
        self._flusher.fsync_later(segments.directory)  # until then the checkpoint of log starts has this log
        self._delete_snapshots(bases)
        return count

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Replacement], now_ms: Millis) -> None:
        """`Log.replace_segments`."""
        self._state.now_ms = max(self._state.now_ms, now_ms)
        self._health.check()
        try:
            self._replace_segments(old, new, now_ms)
        except OSError as error:  # perhaps half of the files are renamed
            raise self._health.fail(error) from error

    def _replace_segments(self, old: Sequence[Segment], new: Sequence[Replacement], now_ms: Millis) -> None:
        segments = self._segments
        segments.replace(old, new, now_ms)
        self._flusher.fsync_later(segments.directory)
        kept = {each.base_offset for each in new}
        self._delete_snapshots([each.base_offset for each in old if each.base_offset not in kept])

    def _delete_snapshots(self, bases: list[Offset]) -> None:
        for base in bases:
            path = self._producer_state.mark_snapshot_for_deletion(base)
            if path is not None:
                self._segments.schedule_deletion(path, self._state.now_ms)
