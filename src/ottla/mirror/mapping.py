"""Offsets of a source's partition as offsets of its mirror, exactly, and the other way round.

Records are copied one to one and in order, but their offsets differ: markers of transactions, aborted records and
compaction leave gaps on both sides. What is kept is runs, in which both sides go on by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model import Offset


class Run(NamedTuple):
    """As many records from offset `source` on are those from `destination` on."""

    source: Offset
    destination: Offset
    records: int


class Stretch(NamedTuple):
    """`records` consecutive offsets of one side, each with a record."""

    start: Offset
    records: int


@dataclass
class Mapping:
    """Of one partition. `through`: every record of the source before it has been copied."""

    runs: list[Run] = field(default_factory=list)
    origin: Offset = 0
    """Where the destination ended before anything was copied, or before copying went on after a failback."""
    start: Offset = 0
    """Where copying began at the source, or went on after a failback."""
    through: Offset = 0

    def end(self) -> Offset:
        """Behind the last copied record at the destination."""
        last = self.runs[-1].destination + self.runs[-1].records if self.runs else 0
        return max(last, self.origin)

    def source_end(self) -> Offset:
        """Behind the last copied record at the source, or behind all that was looked at."""
        last = self.runs[-1].source + self.runs[-1].records if self.runs else 0
        return max(last, self.start, self.through)

    def extend(self, runs: Iterable[Run]) -> None:
        """Add what was copied next. Raises ValueError for runs that go back."""
        for run in runs:
            last = self.runs[-1] if self.runs else None
            if last is not None:
                if run.source < last.source + last.records or run.destination < last.destination + last.records:
                    raise ValueError(f"{run} lies before the end of {last}")
                ends = (last.source + last.records, last.destination + last.records)
                if ends == (run.source, run.destination):
                    self.runs[-1] = Run(last.source, last.destination, last.records + run.records)
                    continue
            self.runs.append(run)

    def translate(self, offset: Offset) -> Offset | None:
        """Where a group goes on at the destination which goes on at `offset` at the source.

        That is at the first copied record with this offset or a later one. None where the mirror has not come there,
        and for what lies before `start` and was not copied.
        """
        at = bisect_right(self.runs, self.start - 1, key=lambda run: run.source)
        copied_before = self.runs[at - 1].source + self.runs[at - 1].records if at else 0
        if offset > self.source_end() or copied_before <= offset < self.start:
            return None
        return _translated(self.runs, offset, self.end())

    def back(self, offset: Offset) -> Offset | None:
        """The reverse of `translate`: an offset of the destination as one of the source. None past what was copied."""
        if offset > self.end():
            return None
        turned = [Run(run.destination, run.source, run.records) for run in self.runs]
        return _translated(turned, offset, self.source_end())


def _translated(runs: Sequence[Run], offset: Offset, end: Offset) -> Offset:
    at = bisect_right(runs, offset, key=lambda run: run.source) - 1
    if at >= 0 and offset < runs[at].source + runs[at].records:
        return runs[at].destination + offset - runs[at].source
    return runs[at + 1].destination if at + 1 < len(runs) else end


def stretches(offsets: Iterable[Offset]) -> list[Stretch]:
    """Ascending offsets as stretches without gaps."""
    found: list[Stretch] = []
    for offset in offsets:
        if found and found[-1].start + found[-1].records == offset:
            found[-1] = Stretch(found[-1].start, found[-1].records + 1)
        else:
            found.append(Stretch(offset, 1))
    return found


def paired(source: Iterable[Stretch], destination: Iterable[Stretch]) -> list[Run]:
    """The n-th record of one side with the n-th of the other. Raises ValueError where one side has more records."""
    runs = []
    left, right = list(source)[::-1], list(destination)[::-1]
    while left and right:
        one, other = left.pop(), right.pop()
        count = min(one.records, other.records)
        runs.append(Run(one.start, other.start, count))
        if one.records > count:
            left.append(Stretch(one.start + count, one.records - count))
        if other.records > count:
            right.append(Stretch(other.start + count, other.records - count))
    if left or right:
        more = "source" if left else "destination"
        raise ValueError(f"the {more} has {sum(each.records for each in left or right)} records more")
    return runs
