"""What a micro-batch takes, what it has lost, and how tasks share it."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from ottla.model import TopicPartition
from ottla.spark.offsets import Offsets, Position
from ottla.spark.planning import DataLoss, Plan, loss_text, plan, plan_batch, rate_limit, waits
from ottla.spark.ranges import Range, split

A, B, C = (TopicPartition("t", partition) for partition in range(3))


def planned_offsets(start: Offsets, end: Offsets, earliest: Offsets) -> Plan:
    """Where the ids of topics are not known; with them see `test_changed_topics.py`."""
    return plan(Position(start, {}), Position(end, {}), earliest, {})


def sizes(ranges: list[Range]) -> list[tuple[int, int]]:
    return [(range_.start, range_.stop) for range_ in ranges]


def test_a_limit_is_shared_in_proportion() -> None:
    latest = {A: 100, B: 300, C: 5}
    assert rate_limit(40, {A: 0, B: 0, C: 5}, {}, latest) == {A: 10, B: 30, C: 5}


def test_a_limit_starves_nobody_and_goes_past_no_end() -> None:
    assert rate_limit(1, {A: 0, B: 7}, {}, {A: 1000, B: 8}) == {A: 1, B: 8}
    assert rate_limit(10_000, {A: 0}, {}, {A: 8}) == {A: 8}


def test_a_new_partition_counts_from_its_beginning() -> None:
    assert rate_limit(10, {A: 90}, {B: 50}, {A: 100, B: 60}) == {A: 95, B: 55}
    assert rate_limit(10, {}, {}, {A: 100}) == {A: 100}


def test_a_batch_waits_for_enough_records_or_long_enough() -> None:
    assert waits(10, {A: 5}, {A: 9, B: 5}, 0, 1000)
    assert not waits(9, {A: 5}, {A: 9, B: 5}, 0, 1000)
    assert not waits(10, {A: 5}, {A: 9, B: 5}, 1000, 1000)


def test_a_plan_without_loss() -> None:
    planned = planned_offsets({A: 3}, {A: 5, B: 2}, {A: 1, B: 0})
    assert planned.ranges == [Range("t", 0, 3, 5), Range("t", 1, 0, 2)] and planned.losses == []


def test_what_is_gone_is_lost() -> None:
    planned = planned_offsets({A: 3, B: 1}, {B: 1}, {B: 0})
    assert planned.losses == ["partition t-0 is gone, at offset 3"]
    assert planned_offsets({}, {A: 3}, {}).losses == ["new partition t-0 was deleted before its first offset was known"]
    assert planned_offsets({A: 1}, {A: 3}, {}).ranges == []


def test_retention_passes_a_reader() -> None:
    planned = planned_offsets({A: 3}, {A: 10}, {A: 7})
    assert sizes(planned.ranges) == [(7, 10)]
    assert planned.losses == ["partition t-0 begins at offset 7, behind 3, where reading should resume"]
    assert sizes(planned_offsets({A: 3}, {A: 5}, {A: 7}).ranges) == [(5, 5)]
    assert planned_offsets({A: 3}, {A: 3}, {A: 7}).losses == []


def test_a_recreated_topic_and_a_late_new_partition() -> None:
    planned = planned_offsets({A: 30}, {A: 4}, {A: 0})
    assert sizes(planned.ranges) == [(0, 4)] and "its topic was recreated" in planned.losses[0]
    assert planned_offsets({}, {A: 9}, {A: 4}).losses == ["new partition t-0 begins at offset 4, not at 0"]
    assert "set failOnDataLoss to false" in loss_text(planned.losses)


def test_ranges_stay_whole_by_default() -> None:
    assert split([Range("t", 0, 0, 10), Range("t", 1, 5, 5)], None, None) == [Range("t", 0, 0, 10)]
    assert split([Range("t", 0, 0, 10)], 1, None) == [Range("t", 0, 0, 10)]
    assert split([], 4, 4) == []


def test_large_ranges_are_divided_and_small_ones_stay() -> None:
    ranges = [Range("t", 0, 1, 2), Range("t", 1, 1, 2), Range("t", 2, 1, 10_001)]
    assert sizes(split(ranges, 4, None)) == [(1, 2), (1, 2), (1, 5001), (5001, 10_001)]
    assert sizes(split([Range("t", 0, 1, 5)], 3, None)) == [(1, 2), (2, 3), (3, 5)]


def test_no_task_has_more_records_than_allowed() -> None:
    assert sizes(split([Range("t", 0, 0, 7)], None, 3)) == [(0, 2), (2, 4), (4, 7)]
    assert len(split([Range("t", 0, 0, 100)], 7, 50)) == 8


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=8),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 300),
)
def test_a_split_covers_every_offset_once(
    bounds: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = [Range("t", number, start, start + size) for number, (start, size) in enumerate(bounds)]
    parts = split(ranges, partitions_min, records_max)
    assert all(part.size > 0 and (records_max is None or part.size <= records_max) for part in parts)
    for range_ in ranges:
        mine = [part for part in parts if part.partition == range_.partition]
        assert sum(part.size for part in mine) == range_.size
        assert [part.start for part in mine[1:]] == [part.stop for part in mine[:-1]]


@given(st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 1000), min_size=1), st.integers(1, 500))
def test_limited_batches_end_where_unlimited_ones_do(latest: dict[TopicPartition, int], limit: int) -> None:
    at = dict.fromkeys(latest, 0)
    for _ in range(sum(latest.values()) + 1):
        if at == latest:
            break
        end = rate_limit(limit, at, {}, latest)
        assert end != at and all(at[partition] <= end[partition] <= latest[partition] for partition in latest)
        at = end
    assert at == latest


def test_a_batch_is_planned_within_what_the_log_has() -> None:
    a, b, c, d = (TopicPartition("t", number) for number in range(4))
    start, end = {a: 0, b: 5, c: 9, d: 3}, {a: 10, b: 20, c: 9, d: 2}
    first, last = {a: 4, b: 0, c: 0, d: 8}, {a: 10, b: 15, c: 9, d: 10}
    ranges, losses = plan_batch(start, end, first, last)
    assert ranges == [Range("t", 0, 4, 10), Range("t", 1, 5, 15)]
    assert losses == [
        "partition t-0 begins at offset 4, behind 0, where reading should start",
        "partition t-1 ends at offset 15, before 20, where reading should end",
    ]
    assert plan_batch({a: 0}, {a: 3}, {a: 4}, {a: 10}).ranges == []
    copy = pickle.loads(pickle.dumps(DataLoss(losses)))
    assert str(copy) == str(DataLoss(losses)) and "set failOnDataLoss to false" in str(copy)
