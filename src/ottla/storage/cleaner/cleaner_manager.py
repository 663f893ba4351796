"""Chooses the log to compact next, and how far (Kafka's `LogCleanerManager` and `Cleaner.groupSegmentsBySize`).

Nothing is read or changed here but what the log knows of its segments. A log has a clean part, which was compacted
before and holds a key once, and a dirty part behind it; the dirtiest log is the one whose dirty part is the largest
share of what could be compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.model import Millis, Offset
from ottla.storage.config import LONG_MAX, LogConfig
from ottla.storage.segments.index_file import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from ottla.storage.segments.segment_ports import CleanedSegment

S = TypeVar("S", bound="CleanedSegment")

GROUP_SEGMENTS_MAX = 64
"""The event loop waits while the files of a group are renamed, three or four of each segment. The next cleaning puts
together what the last one left apart."""


class Dirt(NamedTuple):
    """How much of one log is there to compact."""

    first_dirty: Offset
    """Below it the log was compacted before."""
    uncleanable: Offset
    """Where the segments begin that may not be compacted yet."""
    clean_bytes: int
    dirty_bytes: int
    delay_ms: Millis
    """How long the oldest dirty record is overdue by `max.compaction.lag.ms` (KIP-354), 0 if it is not."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.delay_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def first_dirty_offset(cleaned: Offset | None, log_start: Offset, log_end: Offset) -> Offset:
    """Where the dirty part begins; `cleaned` is the checkpoint, which may be of another life of the log."""
    if cleaned is None or cleaned < log_start or cleaned > log_end:
        return log_start
    return cleaned


def measure(
    segments: Sequence[CleanedSegment],
    config: LogConfig,
    *,
    cleaned: Offset | None,
    log_start: Offset,
    log_end: Offset,
    last_stable: Offset,
    now_ms: Millis,
) -> Dirt | None:
    """What there is to compact in a log, None if nothing.

    Not compacted are the active segment, what is not decided and committed, and segments with records that are younger
    than `min.compaction.lag.ms` (KIP-58), with all that follow them.
    """
    active = segments[-1].base_offset
    first_dirty = first_dirty_offset(cleaned, log_start, log_end)
    limit = min(last_stable, active)
    if first_dirty >= limit:
        return None
    sealed = segments[:-1]
    first = next((number for number, each in enumerate(segments) if each.base_offset > first_dirty), len(segments)) - 1
    dirty = sealed[max(first, 0) :]
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        limit = min(limit, next((each.base_offset for each in dirty if each.max_timestamp > youngest), limit))
    # Whole segments only: up to the one that the limit is in, or that begins there.
    uncleanable = max(each.base_offset for each in segments if each.base_offset <= limit)
    if first_dirty >= uncleanable:
        return None
    clean_bytes = sum(each.size for each in segments if each.base_offset < first_dirty)
    dirty_bytes = sum(each.size for each in dirty if each.base_offset < uncleanable)
    if not clean_bytes + dirty_bytes:
        return None
    return Dirt(first_dirty, uncleanable, clean_bytes, dirty_bytes, _delay(dirty, config, now_ms))


def _delay(dirty: Sequence[CleanedSegment], config: LogConfig, now_ms: Millis) -> Millis:
    if config.max_compaction_lag_ms >= LONG_MAX:
        return 0
    stamps = [stamp for stamp in (each.first_batch_timestamp() for each in dirty) if stamp > 0]
    return max(now_ms - config.max_compaction_lag_ms - min(stamps, default=now_ms), 0)


def group_segments(segments: Sequence[S], config: LogConfig, uncleanable: Offset) -> list[list[S]]:
    """Runs of segments that become one: within `segment.bytes`, the size of an index, 2^31 offsets, and a number.

    An empty segment always fits (KAFKA-12889), or a log with few keys would keep one for every 2^31 offsets.
    """
    groups: list[list[S]] = []
    log_bytes = offset_bytes = time_bytes = 0
    for number, segment in enumerate(segments):
        sizes = segment.index_sizes()
        end = segments[number + 1].base_offset if number + 1 < len(segments) else uncleanable
        group = groups[-1] if groups else None
        if (
            group is None
            or len(group) == GROUP_SEGMENTS_MAX
            or log_bytes + segment.size > config.segment_bytes
            or offset_bytes + sizes[0] > config.segment_index_bytes
            or time_bytes + sizes[1] > config.segment_index_bytes
            or (segment.size and end - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX)
        ):
            group = []
            groups.append(group)
            log_bytes = offset_bytes = time_bytes = 0
        group.append(segment)
        log_bytes += segment.size
        offset_bytes += sizes[0]
        time_bytes += sizes[1]
    return groups
