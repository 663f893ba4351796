"""What a fetch and its acknowledgements count of ranges of records, each in one compiled loop: a key that is held up
takes what is fetched apart into many ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.metrics.instruments import Histogram
from ottla.model import Offset
from ottla.replication.share.aborted import ReadBatch

if TYPE_CHECKING:
    from ottla.replication.share.aborted import OffsetRange
    from ottla.replication.share.config import Mark

Range = tuple[Offset, Offset, object]
"""The first and last offset; what else is known of the records does not matter here."""


def count_records(ranges: Sequence[Range]) -> int:
    """How many records there are in all."""
    found = 0
    for row in ranges:
        first, last = row[0], row[1]
        found += last - first + 1
    return found


def has_shorter(batches: Sequence[ReadBatch], records: int) -> bool:
    """Whether a batch has at most so many records."""
    for batch in batches:
        last_offset = batch.last_offset
        if last_offset - batch.base_offset < records:
            return True
    return False


def add_lengths(histogram: Histogram, ranges: Sequence[Range]) -> None:
    """Count how long each range is; neighbours of one length at once."""
    length = times = 0
    for row in ranges:
        first, last = row[0], row[1]
        each = last - first + 1
        if each != length:
            if times:
                histogram.add(length, times)
            length, times = each, 0
        times += 1
    if times:
        histogram.add(length, times)


def spans(ranges: Sequence[Range], near: int) -> list[tuple[Offset, Offset]]:
    """Offsets in a row that have the ranges, which are in order: those no further apart than `near` are together."""
    found: list[tuple[Offset, Offset]] = []
    start = until = -1
    for row in ranges:
        first, last = row[0], row[1]
        if until < 0:
            start = first
        elif first - until > near:
            found.append((start, until))
            start = first
        until = last
    if until >= 0:
        found.append((start, until))
    return found


def index_of(marks: Sequence[tuple[Offset, object, object]], offset: Offset) -> int:
    """Where the marks from an offset on begin. They are in order, and nearly always have each offset: there is no
    search then."""
    if not marks:
        return 0
    guess = offset - marks[0][0]
    if guess <= 0:
        return 0
    if guess < len(marks) and marks[guess][0] == offset:
        return guess
    return bisect_left(marks, (offset,))


def count_types(counts: dict[int, int], ranges: Sequence[tuple[Offset, Offset, Sequence[int]]]) -> None:
    """Add the records of ranges that have one type for all or one for each, to the counts of the types that are
    counted."""
    type_ = records = 0
    for row in ranges:
        first, last, types = row[0], row[1], row[2]
        if len(types) != 1:
            for said in types:
                if said in counts:
                    counts[said] += 1
            continue
        said = types[0]
        if said != type_:
            if records and type_ in counts:
                counts[type_] += records
            type_, records = said, 0
        records += last - first + 1
    if records and type_ in counts:
        counts[type_] += records


def marks_outside(marks: Sequence[Mark], aborted: Sequence[OffsetRange]) -> list[Mark]:
    """The records that do not belong to aborted transactions."""
    left: list[Mark] = []
    ranges = iter(aborted)
    current = next(ranges, None)
    for mark in marks:
        while current is not None and current.last_offset < mark[0]:
            current = next(ranges, None)
        if current is None or mark[0] < current.first_offset:
            left.append(mark)
    return left
