"""The arithmetic of quotas, number for number that of Kafka's `Rate`, `TokenBucket` and `QuotaUtils`.

Times are milliseconds of any clock that does not go back; rates are per second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ottla.model import Millis


class Windows(NamedTuple):
    """How long is looked back (`quota.window.num`, `quota.window.size.seconds`)."""

    samples: int = 11
    size_ms: Millis = 1000


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: Millis) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: Millis) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Rate per second: the sum of the samples by the time that they span (Kafka's `Rate` of a `WindowedSum`)."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        """At most one more than there are windows: a sample that began before the span and reaches into it counts."""
        self._current = 0

    def record(self, value: float, now_ms: Millis) -> None:
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._windows.size_ms:
            self._current = (self._current + 1) % (self._windows.samples + 1)
            if self._current >= len(samples):
                samples.append(_Sample(now_ms))
            else:
                samples[self._current].reset(now_ms)
            sample = samples[self._current]
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: Millis) -> float:
        self._purge(now_ms)
        total = 0.0
        for sample in self._samples:
            total += sample.value
        return total / (self.span_ms(now_ms) / 1000.0)

    def span_ms(self, now_ms: Millis) -> Millis:
        """Time over which the rate is measured: all full windows but one, and the elapsed part of the last. At least
        1."""
        self._purge(now_ms)
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        size_ms = self._windows.size_ms
        passed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        full, least = passed_ms // size_ms, self._windows.samples - 1
        if full < least:
            passed_ms += (least - full) * size_ms
        return max(passed_ms, 1)

    def _purge(self, now_ms: Millis) -> None:
        """Samples without anything in the span start empty."""
        oldest_ms = now_ms - self._windows.samples * self._windows.size_ms
        for sample in self._samples:
            if sample.last_ms <= oldest_ms:
                sample.reset(now_ms)


class TokenBucket:
    """Tokens come at the rate of the quota, and go with what is used; below zero nothing more is to be used.

    It holds what comes in all windows together: that much may be used at once.
    """

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows, now_ms: Millis) -> None:
        self._windows = windows
        self._tokens = math.inf
        """Full, whatever the quota."""
        self._updated_ms = now_ms

    def record(self, value: float, quota: float, now_ms: Millis) -> None:
        self.measure(quota, now_ms)
        self._tokens = min(self._burst(quota), self._tokens - value)

    def measure(self, quota: float, now_ms: Millis) -> float:
        """The tokens that are there."""
        come = quota * ((now_ms - self._updated_ms) / 1000.0)
        self._tokens = min(self._burst(quota), self._tokens + come)
        self._updated_ms = now_ms
        return self._tokens

    def _burst(self, quota: float) -> float:
        return self._windows.samples * (self._windows.size_ms / 1000.0) * quota


class Average:
    """Average of the values in the windows of a metric without a quota (Kafka's `Avg`: two samples of 30 s)."""

    __slots__ = ("_samples",)

    WINDOWS = Windows(2, 30_000)

    def __init__(self) -> None:
        self._samples: list[tuple[Millis, float, int]] = []
        """(start, sum, count), oldest first."""

    def record(self, value: float, now_ms: Millis) -> None:
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self.WINDOWS.size_ms:
            start_ms, total, count = samples[-1]
            samples[-1] = (start_ms, total + value, count + 1)
        else:
            samples.append((now_ms, value, 1))
            del samples[: -self.WINDOWS.samples]

    def measure(self, now_ms: Millis) -> float:
        """NaN where nothing was recorded."""
        oldest_ms = now_ms - self.WINDOWS.samples * self.WINDOWS.size_ms
        recent = [(total, count) for start_ms, total, count in self._samples if start_ms > oldest_ms]
        count = sum(each for _, each in recent)
        return sum(total for total, _ in recent) / count if count else math.nan


def rounded(value: float) -> int:
    """Half up (Java's `Math.round`)."""
    return math.floor(value + 0.5)


def delay_ms(rate: float, quota: float, span_ms: Millis) -> Millis:
    """How long nothing is to be recorded until a `rate` over `span_ms` is down to the quota (`QuotaUtils`)."""
    return rounded((rate - quota) / quota * span_ms)


def refill_ms(tokens: float, quota: float) -> Millis:
    """How long until there are no tokens below zero."""
    return rounded(-tokens / quota * 1000)
