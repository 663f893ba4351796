"""What those who choose among a log's segments ask of one: `Segment`.

Types only: nothing here is imported while a node runs.
"""

from __future__ import annotations

from typing import Protocol

from ottla.model import Millis, Offset


class SegmentFacts(Protocol):
    """What everybody asks."""

    base_offset: Offset
    size: int


class RetainedSegment(SegmentFacts, Protocol):
    """What retention asks of a segment."""

    def retention_timestamp(self) -> Millis: ...


class CleanedSegment(SegmentFacts, Protocol):
    """What planning asks of a segment."""

    @property
    def max_timestamp(self) -> Millis: ...
    def first_batch_timestamp(self) -> Millis: ...
    def index_sizes(self) -> tuple[int, int]:
        """Bytes of its offset index and its time index."""
        ...
