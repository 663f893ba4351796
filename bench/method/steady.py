"""When a side is warm: its rate, in windows one after the other, has stopped to change.

A JVM answers three times as much after half a minute as in its first seconds, so nothing is measured before. Pure: the
windows are given, with the rate and the length of each.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Window:
    """A stretch of load before the measurement."""

    seconds: float
    requests: int
    rate: float
    """Requests per second, or another figure that is higher when the side is faster."""


@dataclass(frozen=True)
class Rule:
    """Steady: the last `windows` rates lie within `spread_max` of their median, after `seconds_min` and `requests_min`.

    Nobody waits beyond `seconds_max`; a side that is not steady by then is measured all the same and marked.
    """

    windows: int = 3
    window_s: float = 2.0
    spread_max: float = 0.08
    seconds_min: float = 6.0
    requests_min: int = 1000
    seconds_max: float = 30.0

    def __str__(self) -> str:
        return (
            f"windows of {self.window_s:g} s; steady when the last {self.windows} rates lie within "
            f"{self.spread_max:.0%} of their median, after {self.seconds_min:g} s and {self.requests_min:,} requests; "
            f"given up after {self.seconds_max:g} s"
        )


def spread(rates: Sequence[float]) -> float:
    """Distance of the highest from the lowest as a part of the median; infinite where the median is 0."""
    middle = statistics.median(rates)
    return (max(rates) - min(rates)) / middle if middle > 0 else float("inf")


@dataclass
class WarmUp:
    """Windows so far, judged by a rule."""

    rule: Rule
    windows: list[Window] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(window.seconds for window in self.windows)

    @property
    def spread(self) -> float:
        """Spread of the windows that decide; infinite while there are too few."""
        if len(self.windows) < self.rule.windows:
            return float("inf")
        return spread([window.rate for window in self.windows[-self.rule.windows :]])

    @property
    def is_steady(self) -> bool:
        requests = sum(window.requests for window in self.windows)
        enough = self.seconds >= self.rule.seconds_min and requests >= self.rule.requests_min
        return enough and self.spread <= self.rule.spread_max

    @property
    def is_over(self) -> bool:
        return self.is_steady or self.seconds >= self.rule.seconds_max

    def __str__(self) -> str:
        """A text like "12 s" or "40 s, not steady (9 %)"."""
        return f"{self.seconds:.0f} s" + ("" if self.is_steady else f", not steady ({self.spread:.0%})")


def warm_up(window: Callable[[float], Window], rule: Rule) -> WarmUp:
    """Run windows, given their length, until the side is steady or the rule gives up."""
    warmth = WarmUp(rule)
    while not warmth.is_over:
        warmth.windows.append(window(rule.window_s))
    return warmth
