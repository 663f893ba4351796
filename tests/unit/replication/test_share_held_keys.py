"""A share group in order by key, one of whose keys is held: the others go on at the same cost, however much waits.

Counted are calls of Python functions, which no machine and no load changes: `test_compiled.py` runs this file
interpreted, where all of them are seen. Instructions of the whole node are counted by
`python -m bench.instructions "keyed records"`.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from ottla.coordinator.share.combining import combine, combine_into
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.aborted import OffsetRange, ReadBatch
from ottla.replication.share.acquisition import Acquired, Wanted
from ottla.replication.share.config import Mark, ShareConfig
from ottla.replication.share.ranges import count_records
from ottla.replication.share.share_partition import LoadedState, SharePartition

HELD_KEY = -7
CONFIG = ShareConfig(is_ordered_by_key=True, waiting_max=20_000)
BATCH = 100


class Queue:
    """A share-partition, a log of records in batches of 100, and a coordinator that keeps each write at once."""

    def __init__(self, keys: list[int]) -> None:
        self.core = SharePartition(LoadedState(0, 0), 0, CONFIG)
        self.keys = keys
        self.kept: list[StateBatch] = []

    def fetch(self, member: str, records: int) -> list[Acquired]:
        batches: list[ReadBatch] = []
        read: list[OffsetRange] = []
        for first, until in self.core.parts(records):
            base = max(first // BATCH * BATCH, batches[-1].last_offset + 1 if batches else 0)
            last = min(until // BATCH * BATCH + BATCH, len(self.keys)) - 1
            if base <= last:
                batches += [ReadBatch(each, each + BATCH - 1) for each in range(base, last + 1, BATCH)]
                begin = max(first, base)
                if read and read[-1].last_offset + 1 == begin:
                    begin = read.pop().first_offset
                read.append(OffsetRange(begin, last))
        selection = self.core.selection
        assert selection is not None
        new = range(max(selection.scan_from, selection.marked_until + 1), batches[-1].last_offset + 1)
        marks: list[Mark] = [*selection.ahead, *((offset, self.keys[offset], 0) for offset in new)]
        first = read[0].first_offset
        return self.core.acquire(Wanted(member, records, records, True), first, batches, 0, (), marks, read)

    def accept(self, member: str, acquired: list[Acquired]) -> None:
        said = [(first, last, (1,)) for first, last, _ in acquired]
        write = self.core.acknowledge(member, said, 0)
        assert write is not None
        combine_into(self.kept, write.batches, write.start_offset)
        self.core.written(write, 0, committed=True)


def calls(work: Any) -> int:
    """Calls of functions, as far as they are not compiled."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def held(waiting: int) -> Queue:
    """The first record of a key is with a member, and as many wait behind it, each between others that are done."""
    queue = Queue([HELD_KEY if not number % 3 else number for number in range(3 * waiting + 3_000)])
    assert queue.fetch("holder", 1) == [(0, 0, 1)]
    others = 0
    while others < 2 * waiting:
        found = queue.fetch("worker", min(500, 2 * waiting - others))
        others += count_records(found)
        queue.accept("worker", found)
    return queue


def cost_of_others(waiting: int) -> int:
    queue = held(waiting)
    selection = queue.core.selection
    assert selection is not None and selection.waiting() >= waiting - 1
    return calls(lambda: queue.accept("worker", queue.fetch("worker", 100)))


def test_what_waits_costs_the_others_nothing() -> None:
    few, many = cost_of_others(600), cost_of_others(6_000)
    assert many < 1.05 * few, f"{few} calls with 600 records that wait, {many} with 6,000"


def test_a_freed_record_comes_with_others() -> None:
    """A fetch reads the log in two places, and is not used up by one record."""
    queue = held(50)
    queue.accept("holder", [(0, 0, 1)])
    found = queue.fetch("worker", 100)
    assert found[0] == (3, 3, 1)
    assert count_records(found) == 100
    assert all(queue.keys[offset] != HELD_KEY for each in found[1:] for offset in range(each[0], each[1] + 1))


def test_what_is_available_and_what_is_new_may_lie_in_one_batch() -> None:
    queue = Queue([*range(1_000)])
    first = queue.fetch("worker", 1)
    assert first == [(0, 0, 1)]
    assert queue.fetch("worker", 500) == [(1, 500, 1)]


@pytest.mark.parametrize("start", [0, 5])
def test_new_batches_in_place_are_those_of_kafka_s_combiner(start: int) -> None:
    known = combine((), [StateBatch(0, 3, 4, 1), StateBatch(5, 5, 0, 1), StateBatch(8, 9, 4, 1)], 0)
    new = [StateBatch(4, 6, 4, 1), StateBatch(7, 7, 4, 1), StateBatch(12, 14, 2, 1)]
    found = [*known]
    combine_into(found, new, start)
    assert tuple(found) == combine(known, new, start)


def test_records_of_aborted_transactions_are_not_waited_for() -> None:
    core = SharePartition(LoadedState(0, 0), 0, CONFIG)
    marks: list[Mark] = [(0, 1, 0), (1, 2, 0), (2, 1, 0)]
    found = core.acquire(Wanted("m", 10, 10), 0, [ReadBatch(0, 2)], 0, [OffsetRange(0, 0)], marks)
    assert found == [(1, 2, 1)]
