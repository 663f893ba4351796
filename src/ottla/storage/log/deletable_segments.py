"""Chooses the segments that a log may drop: retention by log start, by size and by time, as Kafka's `UnifiedLog`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.model import Millis, Offset
from ottla.storage.config import LogConfig

if TYPE_CHECKING:
    from ottla.storage.segments.segment_ports import RetainedSegment


def count_deletable(
    segments: Sequence[RetainedSegment],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    log_end_offset: Offset,
    now_ms: Millis,
) -> int:
    """How many of the oldest segments may go. It can be all of them; an empty last segment never counts.

    Whatever is not wholly below the high watermark stays. Topics that are only compacted lose just what lies below
    the log start.
    """
    ends = [segment.base_offset for segment in segments[1:]]
    ends.append(log_end_offset)

    def run(first: int, expired: Callable[[int], bool]) -> int:
        number = first
        while number < len(segments):
            last_and_empty = number == len(segments) - 1 and not segments[number].size
            if last_and_empty or ends[number] > high_watermark or not expired(number):
                break
            number += 1
        return number

    gone = run(0, lambda number: number < len(segments) - 1 and ends[number] <= log_start_offset)
    if not config.delete:
        return gone
    if config.retention_bytes >= 0:
        surplus = sum(segment.size for segment in segments[gone:]) - config.retention_bytes

        def too_much(number: int) -> bool:
            nonlocal surplus
            surplus -= segments[number].size
            return surplus >= 0

        gone = run(gone, too_much)
    if config.retention_ms >= 0:
        gone = run(gone, lambda number: now_ms - segments[number].retention_timestamp() > config.retention_ms)
    return gone
