"""When a side counts as warm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from bench.method.rounds import first_rule
from bench.method.steady import Rule, WarmUp, Window, spread, warm_up
from bench.tables import Run

RULE = Rule(windows=3, window_s=2.0, spread_max=0.06, seconds_min=6.0, requests_min=1000, seconds_max=20.0)


def windows(rates: Sequence[float], requests: int = 1000) -> list[Window]:
    return [Window(2.0, requests, rate) for rate in rates]


def warm(rates: Iterator[float], rule: Rule = RULE, requests: int = 1000) -> WarmUp:
    return warm_up(lambda seconds: Window(seconds, requests, next(rates)), rule)


def test_a_rate_that_grows_is_not_steady_until_it_stops_growing() -> None:
    rates = [8_600, 12_000, 17_000, 21_000, 23_500, 24_500, 24_700, 24_600, 24_650]
    warmth = warm(iter(rates))
    assert [window.rate for window in warmth.windows] == rates[:7]
    assert warmth.is_steady
    assert str(warmth) == "14 s"


@pytest.mark.parametrize("slow_growth", [0.031, 0.05])
def test_a_slow_growth_is_seen_over_all_windows_that_decide(slow_growth: float) -> None:
    """Two neighbours may be within the spread where the three of them are not."""
    warmth = WarmUp(RULE, windows([100 * (1 + slow_growth) ** turn for turn in range(9)]))
    assert spread([window.rate for window in warmth.windows[-2:]]) < RULE.spread_max
    assert not warmth.is_steady


def test_a_constant_rate_is_measured_after_the_least_time() -> None:
    assert len(warm(iter([100.0] * 9)).windows) == 3
    longer = Rule(seconds_min=11.0, requests_min=1000)
    assert len(warm(iter([100.0] * 9), longer).windows) == 6


def test_a_constant_rate_is_measured_after_the_least_requests() -> None:
    assert len(warm(iter([100.0] * 9), requests=200).windows) == 5


def test_a_side_that_never_is_steady_is_given_up_and_marked() -> None:
    warmth = warm(iter([100.0, 200.0] * 10))
    assert warmth.seconds == RULE.seconds_max
    assert not warmth.is_steady
    assert str(warmth) == "20 s, not steady (50%)"


def test_a_side_that_answers_nothing_is_not_steady() -> None:
    assert spread([0.0, 0.0, 0.0]) == float("inf")
    assert not WarmUp(RULE, windows([0.0] * 9)).is_steady


def test_only_the_last_windows_decide() -> None:
    assert WarmUp(RULE, windows([1, 1000, 5, 100, 101, 102])).is_steady
    assert not WarmUp(RULE, windows([100, 101, 102, 1])).is_steady


def test_the_first_load_of_a_broker_takes_longer(run: Run) -> None:
    assert first_rule(run, 0.0).seconds_min == 25.0
    assert first_rule(run, 10.0).seconds_min == 15.0
    assert first_rule(run, 1000.0).seconds_min == RULE.seconds_min
    assert first_rule(run, 0.0).seconds_max >= 25.0
