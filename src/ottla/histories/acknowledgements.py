"""When the records of partitions were acknowledged."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from itertools import pairwise

from ottla.histories.findings import Partition


class Acknowledgements:
    """Times of one clock, in seconds, ascending for each partition."""

    def __init__(self) -> None:
        self.times: dict[Partition, list[float]] = defaultdict(list)

    def note(self, partition: Partition, at_s: float) -> None:
        self.times[partition].append(at_s)

    def count(self) -> int:
        return sum(len(each) for each in self.times.values())

    def since(self, partition: Partition, start_s: float) -> int:
        """How many came after `start_s`."""
        times = self.times[partition]
        return len(times) - bisect(times, start_s)

    def gap_s(self, partition: Partition, start_s: float, end_s: float) -> float:
        """The longest time within these without an acknowledgement."""
        times = self.times[partition]
        within = [start_s, *times[bisect(times, start_s) : bisect(times, end_s)], end_s]
        return max(later - sooner for sooner, later in pairwise(within))
