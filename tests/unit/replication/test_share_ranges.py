"""What a fetch counts of ranges of records."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right

from ottla.metrics.instruments import Histogram
from ottla.metrics.shared import BATCH_RECORDS, ShareMetrics
from ottla.protocol.internal.share_records import DeliveryState
from ottla.replication.share.in_flight import InFlightBatch, Run, floor
from ottla.replication.share.ranges import add_lengths, count_records, count_types, index_of, spans
from ottla.replication.share.window import Window


def test_records_are_counted_by_what_became_of_them() -> None:
    counts = ShareMetrics().acknowledged
    count_types(counts, [(10, 14, [1]), (15, 15, [1]), (20, 21, [2]), (0, 3, [1, 2, 3, 4])])
    count_types(counts, [(5, 6, [0]), (5, 6, [0, 9]), (30, 39, [4]), (40, 44, [0])])
    count_types(counts, [])
    assert counts == {1: 7, 2: 3, 3: 1, 4: 11}


def test_the_lengths_of_ranges_are_counted_one_by_one() -> None:
    ranges = [(0, 98, 1), (100, 198, 1), (200, 200, 1), (300, 398, 1)]
    together, alone = Histogram(BATCH_RECORDS), Histogram(BATCH_RECORDS)
    add_lengths(together, ranges)
    for first, last, _ in ranges:
        alone.add(last - first + 1)
    assert (together.counts, together.sum) == (alone.counts, alone.sum)
    assert count_records(ranges) == 298
    add_lengths(together, [])
    assert together.sum == 298 and count_records([]) == 0


def test_ranges_that_are_near_are_together() -> None:
    assert spans([(0, 9, 1), (12, 20, 1), (24, 24, 1), (30, 31, 1)], 4) == [(0, 24), (30, 31)]
    assert spans([], 4) == []


def offsets(rng: random.Random) -> list[int]:
    """In order: in a row, or with gaps."""
    found = rng.sample(range(60), rng.randint(0, 12)) if rng.random() < 0.7 else range(rng.randint(0, 9))
    return sorted(found)


def test_marks_runs_and_batches_are_found_as_by_a_search() -> None:
    rng = random.Random(1)
    for _ in range(300):
        given = offsets(rng)
        marks = [(offset, None, 0) for offset in given]
        runs = [Run(offset, offset, DeliveryState.AVAILABLE, 0) for offset in given]
        window = Window(0)
        for run in runs:
            window.add(InFlightBatch(run))
        for offset in range(-1, 62):
            assert index_of(marks, offset) == bisect_left(given, offset)
            assert floor(runs, offset) == window.floor(offset) == bisect_right(given, offset) - 1
