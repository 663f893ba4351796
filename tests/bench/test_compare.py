"""Medians, spread and ratios of rounds."""

from __future__ import annotations

import pytest

from bench.method import compare
from bench.method.compare import Spread, alternate, medians, pivot, ratios, rows, short


def test_sides_alternate() -> None:
    assert list(alternate(["ottla", "kafka"], 3)) == ["ottla", "kafka"] * 3
    assert list(alternate(["a", "b", "c"], 2)) == ["a", "b", "c", "a", "b", "c"]


def test_a_median_stands_between_the_lowest_and_the_highest() -> None:
    assert Spread.of([30.0, 10.0, 20.0]) == Spread(20.0, 10.0, 30.0)
    assert Spread.of([31_700, 30_900, 32_100]).text(short) == "31,700 (30,900 to 32,100)"
    assert Spread.of([5.0]).text(short) == "5"


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.123"), (12.34, "12.3"), (999.6, "1,000"), (58_917.2, "58,917"), (float("nan"), "")]
)
def test_figures_have_the_digits_worth_reading(value: float, text: str) -> None:
    assert short(value) == text


def test_a_ratio_is_of_neighbours_not_of_medians() -> None:
    """The machine was half as fast in the second round: the ratio does not notice."""
    ours, theirs = [100.0, 50.0, 101.0], [50.0, 25.0, 50.5]
    assert ratios(ours, theirs) == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="zip"):
        ratios(ours, theirs[:2])


def test_a_table_has_a_row_for_each_side_and_the_ratio_of_the_pairs() -> None:
    ours = [{"req/s": 100.0, "p50 ms": 2.0}, {"req/s": 120.0, "p50 ms": 3.0}, {"req/s": 110.0, "p50 ms": 1.0}]
    theirs = [{"req/s": 200.0, "p50 ms": 1.0}, {"req/s": 200.0, "p50 ms": 1.0}, {"req/s": 100.0, "p50 ms": 0.0}]
    bare = [{"req/s": 1000.0, "p50 ms": 1.0}] * 3
    found = rows({"ottla": ours, "kafka": theirs, "bare": bare}, ("req/s",), {"ottla": {"warm-up": "8 s"}})
    assert found == [
        {"side": "ottla", "req/s": "110 (100 to 120)", "p50 ms": "2", "warm-up": "8 s"},
        {"side": "kafka", "req/s": "200 (100 to 200)", "p50 ms": "1"},
        {"side": "bare", "req/s": "1,000", "p50 ms": "1"},
        {"side": compare.RATIO, "req/s": "0.60 x (0.50 x to 1.10 x)", "p50 ms": "2.50 x"},
    ]
    assert [row["side"] for row in rows({"ottla": ours})] == ["ottla"]
    with_base = rows({"ottla": ours, "base": theirs, "kafka": [{"req/s": 50.0, "p50 ms": 1.0}] * 3})
    assert [(row["side"], row["req/s"]) for row in with_base[3:]] == [
        (compare.BASE_RATIO, "0.60 x"),
        (compare.RATIO, "2.20 x"),
    ]


def test_loads_stand_below_each_other_with_both_sides_in_a_row() -> None:
    ours, theirs = (
        [{"ms": 2.0, "CPU": 1.0}, {"ms": 4.0, "CPU": 1.0}],
        [{"ms": 4.0, "CPU": 0.0}, {"ms": 4.0, "CPU": 0.0}],
    )
    assert pivot("event", {"leave": {"ottla": ours, "kafka": theirs}}, ("ms",), ("ms", "CPU")) == [
        {
            "event": "leave",
            "ottla ms": "3 (2 to 4)",
            "kafka ms": "4",
            "x ms": "0.75 x (0.50 x to 1.00 x)",
            "ottla CPU": "1",
            "kafka CPU": "0",
            "x CPU": "",
        }
    ]


def test_ratios_are_those_to_another_commit_where_there_is_one() -> None:
    one = {side: [{"ms": each}] for side, each in (("ottla", 2.0), ("base", 8.0), ("kafka", 1.0))}
    (row,) = pivot("event", {"leave": one}, (), ("ms",))
    assert row == {"event": "leave", "ottla ms": "2", "base ms": "8", "kafka ms": "1", "x ms": "0.25 x"}


def test_medians_are_taken_by_name() -> None:
    assert medians([{"a": 1.0, "b": 5.0}, {"a": 3.0, "b": 5.0}]) == {"a": 2.0, "b": 5.0}
