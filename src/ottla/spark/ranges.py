"""Ranges of offsets, one for each task: what `KafkaOffsetRangeCalculator` of Spark's connector makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ottla.model import Offset, TopicPartition


class Range(NamedTuple):
    """The offsets from `start` up to but not with `stop` of a partition: what a task reads."""

    topic: str
    partition: int
    start: Offset
    stop: Offset

    @property
    def size(self) -> int:
        """How many records there are at most: compaction and transactions leave gaps."""
        return self.stop - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.stop}"


def split(ranges: Iterable[Range], partitions_min: int | None, records_max: int | None) -> list[Range]:
    """One range for each task; empty ones are left out.

    Ranges longer than `records_max` are divided first. If these are fewer than `partitions_min`, the large ones are
    divided in proportion to their sizes;
    by rounding there may be some more or fewer than that.
    """
    found = [range_ for range_ in ranges if range_.size > 0]
    if records_max is not None:
        found = [part for range_ in found for part in _divide(range_, -(-range_.size // records_max))]
    if not found or partitions_min is None or len(found) >= partitions_min:
        return found
    total = sum(range_.size for range_ in found)
    # The small ranges stay whole and do not count when the rest is shared out among the large ones.
    whole = [range_ for range_ in found if _share(range_.size, total, partitions_min) == 1]
    left = total - sum(range_.size for range_ in whole)
    parts = max(partitions_min - len(whole), 1)
    small = set(whole)
    return [
        part
        for range_ in found
        for part in ([range_] if range_ in small else _divide(range_, _share(range_.size, left, parts)))
    ]


def _share(size: int, total: int, parts: int) -> int:
    # Java's Math.round: halves go up, where Python's `round` takes the even one.
    return max(math.floor(size / total * parts + 0.5), 1)


def _divide(range_: Range, parts: int) -> list[Range]:
    parts = min(parts, range_.size)
    edges = [range_.start]
    for left in range(parts, 0, -1):
        edges.append(edges[-1] + (range_.stop - edges[-1]) // left)
    return [range_._replace(start=start, stop=stop) for start, stop in pairwise(edges)]
