"""Brings what is known of a segment in line with its file again: after a start, after a cut, and where an index led to
where no batch begins. Only the batches are the truth; each function here reads them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Protocol

from ottla.model import NO_TIMESTAMP, Millis, Offset
from ottla.storage.segments.batch_scan import FoundBatch, corrupt
from ottla.storage.segments.index_file import RELATIVE_OFFSET_MAX
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.segment_files import LOG, SegmentFile
from ottla.storage.segments.time_index import TimeIndex
from ottla.storage.segments.transaction_index import TransactionIndex


class RescannedSegment(Protocol):
    """A `Segment`, as far as it is asked and told here."""

    base_offset: Offset
    size: int
    bytes_since_index: int

    @property
    def offset_index(self) -> OffsetIndex: ...
    @property
    def time_index(self) -> TimeIndex: ...
    @property
    def transaction_index(self) -> TransactionIndex: ...
    def path(self, suffix: str) -> str: ...
    def open(self) -> SegmentFile: ...
    def batches(self, position: int) -> Iterable[FoundBatch]: ...
    def position_of(self, offset: Offset) -> int: ...
    def note_batch(self, base_offset: Offset, last_offset: Offset, size: int, max_timestamp: Millis) -> None: ...
    def note_cut(self, position: int) -> None: ...
    def recreate_indexes(self) -> None: ...
    def reset(self) -> None: ...
    def set_max_timestamp(self, timestamp_ms: Millis, offset: Offset) -> None: ...


def load_tail(segment: RescannedSegment, *, trust_time_index: bool = False) -> Offset:
    """Read the batches behind the last index entries; sets the largest timestamp. Returns the next offset.

    The time index of a segment that was closed cleanly ends with the largest timestamp.
    """
    timestamp, timestamp_offset = segment.time_index.last_entry
    index = segment.offset_index
    positions = index.positions
    last_boundary = start = positions[-1] if positions else 0
    if not trust_time_index or timestamp < 0:
        start = min(index.position_before(timestamp_offset), start)
    next_offset = segment.base_offset
    for batch in segment.batches(start):
        next_offset = batch.last_offset + 1
        if batch.position == last_boundary and positions and next_offset - 1 != segment.base_offset + index.offsets[-1]:
            raise corrupt(segment.path(LOG), last_boundary)
        if batch.max_timestamp > timestamp:
            timestamp, timestamp_offset = batch.max_timestamp, batch.last_offset
    if start >= segment.size > 0:  # the index claims more than the file has
        raise corrupt(segment.path(LOG), start)
    segment.bytes_since_index = segment.size - last_boundary
    segment.set_max_timestamp(timestamp, timestamp_offset)
    return next_offset


def truncate(segment: RescannedSegment, offset: Offset) -> Offset:
    """Drop the batches that end at or above `offset`; returns the next offset of what is left. Raises `OSError`."""
    position = segment.position_of(offset)
    file = segment.open().file
    file.truncate(position)
    try:
        file.fsync()  # or a power failure might bring back the old tail behind what is appended next
    except OSError as error:  # what the disk has is not known, whatever the reason: no such error passes
        raise OSError(errno.EIO, f"fsync after a truncation failed: {error}", segment.path(LOG)) from None
    segment.note_cut(position)
    segment.offset_index.truncate(segment.offset_index.count_below(offset))
    segment.time_index.truncate(segment.time_index.count_below(offset))
    segment.transaction_index.truncate_to(offset)
    return load_tail(segment)


def rebuild_indexes(segment: RescannedSegment) -> None:
    """Rebuild offset and time index from the batch headers. Raises `OSError`, and `KafkaError` for a damaged batch."""
    segment.recreate_indexes()
    batches, size = segment.batches(0), segment.size
    segment.reset()
    expected = segment.base_offset
    try:
        for batch in batches:
            if batch.base_offset < expected or batch.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                raise corrupt(segment.path(LOG), batch.position)
            expected = batch.last_offset + 1
            segment.note_batch(batch.base_offset, batch.last_offset, batch.size, batch.max_timestamp)
    finally:
        segment.size = size  # also where a batch is damaged: what is appended next must not overwrite what follows


def largest_timestamp(segment: RescannedSegment) -> tuple[Millis, Offset]:
    """The largest timestamp with the last offset of its first batch. Reads all headers."""
    largest = NO_TIMESTAMP, segment.base_offset
    for batch in segment.batches(0):
        if batch.max_timestamp > largest[0]:
            largest = batch.max_timestamp, batch.last_offset
    return largest
