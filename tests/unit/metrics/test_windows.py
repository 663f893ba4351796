"""Averages, maxima and rates over windows: what falls out of them, and when."""

from __future__ import annotations

import math

import pytest

from ottla.metrics.windows import Windows


def test_values_count_in_their_window_and_in_the_one_behind_it() -> None:
    windows = Windows(seconds=10, count=2)
    windows.record(4, 100)
    windows.record(8, 109.9)
    assert (windows.average(109.9), windows.maximum(109.9)) == (6, 8)
    windows.record(2, 110)
    assert windows.average(119.9) == pytest.approx(14 / 3)
    assert windows.maximum(119.9) == 8
    assert (windows.average(120), windows.maximum(120)) == (2, 2)
    assert math.isnan(windows.average(130)) and math.isnan(windows.maximum(130))


def test_a_rate_is_over_the_time_that_the_windows_span() -> None:
    windows = Windows(seconds=10, count=3)
    windows.record(50, 105)
    assert windows.per_second(105) == 50 / 25
    windows.record(10, 119)
    assert windows.per_second(119) == 60 / 29
    assert windows.per_second(120) == 60 / 20
    assert windows.per_second(130) == 10 / 20
    assert windows.per_second(150) == 0


def test_a_rate_of_a_moment_is_not_taken_for_that_of_a_second() -> None:
    windows = Windows(seconds=10, count=1)
    windows.record(3, 100)
    assert windows.per_second(100) == 3
    assert windows.per_second(105) == 3 / 5


def test_values_below_zero_have_a_maximum_too() -> None:
    windows = Windows()
    windows.record(-2, 1)
    windows.record(-1, 2)
    assert windows.maximum(3) == -1


def test_without_values() -> None:
    windows = Windows()
    assert math.isnan(windows.average(5)) and math.isnan(windows.maximum(5))
    assert windows.per_second(5) == 0
