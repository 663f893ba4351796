"""Averages, maxima and rates over the latest time (Kafka's `SampledStat`): old values fall out by windows."""

from __future__ import annotations

from collections import deque

SECONDS_MIN = 1.0
"""A rate over less would say more of the moment than of the time."""


class Windows:
    """Values of the latest windows, the current one among them: of `count` - 1 to `count` times `seconds`.

    Times are seconds of a clock that only goes forward.
    """

    __slots__ = ("_count", "_samples", "_seconds")

    def __init__(self, seconds: float = 30.0, count: int = 2) -> None:
        """The defaults are those of `metrics.sample.window.ms` and `metrics.num.samples`."""
        self._seconds = seconds
        self._count = count
        self._samples: deque[_Sample] = deque()
        """Windows with values, oldest first."""

    def record(self, value: float, now_s: float) -> None:
        number = int(now_s // self._seconds)
        if not self._samples or self._samples[-1].number != number:
            self._drop(now_s)
            self._samples.append(_Sample(number, value))
        sample = self._samples[-1]
        sample.values += 1
        sample.sum += value
        sample.max = max(sample.max, value)

    def average(self, now_s: float) -> float:
        """NaN without values, as in Kafka."""
        self._drop(now_s)
        values = sum(sample.values for sample in self._samples)
        return self._sum() / values if values else float("nan")

    def maximum(self, now_s: float) -> float:
        """NaN without values, as in Kafka."""
        self._drop(now_s)
        return max((sample.max for sample in self._samples), default=float("nan"))

    def per_second(self, now_s: float) -> float:
        """The sum of the values by the time that the windows span."""
        self._drop(now_s)
        return self._sum() / max(now_s - self._first(now_s) * self._seconds, SECONDS_MIN)

    def _sum(self) -> float:
        return sum(sample.sum for sample in self._samples)

    def _first(self, now_s: float) -> int:
        return int(now_s // self._seconds) - self._count + 1

    def _drop(self, now_s: float) -> None:
        while self._samples and self._samples[0].number < self._first(now_s):
            self._samples.popleft()


class _Sample:
    __slots__ = ("max", "number", "sum", "values")

    def __init__(self, number: int, first: float) -> None:
        self.number = number
        self.values = 0
        self.sum = 0.0
        self.max = first
