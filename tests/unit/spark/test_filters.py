"""What filters leave to read, and which of them Spark has to apply again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ottla.model import TopicPartition
from ottla.spark.filters import Narrowing, narrow
from ottla.spark.ranges import Range

WHOLE = [Range("a", 0, 0, 100), Range("a", 1, 50, 100), Range("b", 0, 0, 10)]
AT = datetime(2026, 1, 1, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], WHOLE),
        ([EqualTo(("offset",), 60)], [Range("a", 0, 60, 61), Range("a", 1, 60, 61)]),
        ([EqualNullSafe(("offset",), 5)], [Range("a", 0, 5, 6), Range("b", 0, 5, 6)]),
        ([GreaterThan(("offset",), 97)], [Range("a", 0, 98, 100), Range("a", 1, 98, 100)]),
        ([GreaterThanOrEqual(("offset",), 9), LessThan(("offset",), 11)], [Range("a", 0, 9, 11), Range("b", 0, 9, 10)]),
        ([LessThanOrEqual(("offset",), 50)], [Range("a", 0, 0, 51), Range("a", 1, 50, 51), WHOLE[2]]),
        ([LessThan(("offset",), 0)], []),
        ([GreaterThan(("offset",), 5), LessThan(("offset",), 5)], []),
        ([In(("offset",), (3, 2, 3))], [Range("a", 0, 2, 4), Range("b", 0, 2, 4)]),
        ([EqualTo(("partition",), 1)], WHOLE[1:2]),
        ([Not(EqualTo(("partition",), 1))], [WHOLE[0], WHOLE[2]]),
        ([In(("partition",), (1, 5))], WHOLE[1:2]),
        ([GreaterThan(("partition",), 0)], WHOLE[1:2]),
        ([EqualTo(("topic",), "b")], WHOLE[2:]),
        ([Not(In(("topic",), ("b", "c")))], WHOLE[:2]),
        ([IsNotNull(("offset",)), IsNotNull(("timestamp",))], WHOLE),
    ],
)
def test_filters_by_place_are_exact(filters: list[Any], left: list[Range]) -> None:
    narrowing, again = narrow(filters)
    assert again == []
    assert narrowing.of(WHOLE) == left


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("a", "offset"), 1),
        EqualTo(("offset",), None),
        EqualTo(("offset",), "1"),
        EqualTo(("offset",), True),
        Not(EqualTo(("offset",), 1)),
        IsNull(("offset",)),
        Not(IsNotNull(("offset",))),
        IsNotNull(("key",)),
        StringStartsWith(("topic",), "a"),
        In(("partition",), ()),
        In(("partition",), (1, None)),
        LessThan(("timestamp",), AT),
        LessThanOrEqual(("timestamp",), AT),
        Not(GreaterThan(("timestamp",), AT)),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001
        GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)),
        EqualTo(("timestampType",), 1),
    ],
)
def test_what_is_not_known_is_sparks(each: Any) -> None:
    narrowing, again = narrow([each])
    assert narrowing == Narrowing()
    assert len(again) == 1 and again[0] is each


def test_offsets_with_others_between_them_are_read_and_filtered_again() -> None:
    each = In(("offset",), (7, 2))
    narrowing, again = narrow([each])
    assert (narrowing.start, narrowing.stop, again) == (2, 8, [each])


@pytest.mark.parametrize(
    ("each", "since_ms"),
    [
        (EqualTo(("timestamp",), AT), AT_MS),
        (GreaterThanOrEqual(("timestamp",), AT), AT_MS),
        (GreaterThanOrEqual(("timestamp",), AT.astimezone(timezone(timedelta(hours=2)))), AT_MS),
        (GreaterThanOrEqual(("timestamp",), AT + timedelta(microseconds=1)), AT_MS + 1),
        (GreaterThan(("timestamp",), AT), AT_MS + 1),
        (GreaterThan(("timestamp",), AT + timedelta(microseconds=999)), AT_MS + 1),
        (In(("timestamp",), (AT + timedelta(seconds=1), AT)), AT_MS),
    ],
)
def test_a_lower_bound_of_timestamps_moves_the_start_and_is_filtered_again(each: Any, since_ms: int) -> None:
    narrowing, again = narrow([each])
    assert narrowing.timestamp_ms == since_ms
    assert again == [each]
    a0, a1, b0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
    assert narrowing.of(WHOLE, {a0: 30, a1: 20, b0: -1}) == [Range("a", 0, 30, 100), Range("a", 1, 50, 100)]


def test_the_highest_of_lower_bounds_counts() -> None:
    later = AT + timedelta(days=1)
    narrowing, _ = narrow([GreaterThanOrEqual(("timestamp",), later), GreaterThan(("timestamp",), AT)])
    assert narrowing.timestamp_ms == AT_MS + 86_400_000
