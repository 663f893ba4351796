"""What was counted for one user of end offsets and lags."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.console.history import History, Paces, Trend, Written
from ottla.console.moving.copying import Copies, Copying, Pace

FOLLOWED_MAX: Final = 100
"""Two pages of groups."""
FOLLOWED_S: Final = 600.0
ALL: Final = ""
"""The name of all topics together."""


class Trends:
    """What was counted for one user; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends, self._lags, self._topic_lags = History(), History(), History()
        self._behind = History()
        self._followed: dict[str, float] = {}
        """Groups that somebody looked at, and when; the last ones last."""
        self._copying = Copying()
        self._paces = Paces()
        self.looked = float("-inf")
        """By the monotonic clock."""

    def look(self) -> Trends:
        self.looked = time.monotonic()
        return self

    def add(self, ends: dict[str, int], lags: dict[str, int | None], topic_lags: dict[str, int | None]) -> None:
        """A sample: records ever written to each topic, lags of groups, lags of the slowest group of each topic."""
        at = time.monotonic()
        with self._lock:
            self._ends.add(at, {**ends, ALL: sum(ends.values())})
            self._lags.add(at, lags)
            self._topic_lags.add(at, topic_lags)

    def paces(self, topic: str, rows: Iterable[Written]) -> dict[Written, float]:
        """Records per second of the producers of a topic since this user looked at them before."""
        with self._lock:
            return self._paces.look(time.monotonic(), topic, rows)

    def follow(self, groups: Iterable[str]) -> None:
        """Sample the lag in time of these groups for a while: somebody looks at them."""
        at = time.monotonic()
        with self._lock:
            for each in groups:
                self._followed.pop(each, None)
                self._followed[each] = at
            while len(self._followed) > FOLLOWED_MAX:
                del self._followed[next(iter(self._followed))]

    def followed(self) -> list[str]:
        at = time.monotonic()
        with self._lock:
            return [each for each, looked in self._followed.items() if at - looked <= FOLLOWED_S]

    def add_behind(self, seconds: Mapping[str, int | None]) -> None:
        """A sample of groups' lag in time."""
        with self._lock:
            self._behind.add(time.monotonic(), seconds)

    def behind_of_group(self, group: str) -> Trend | None:
        with self._lock:
            return self._behind.level(group)

    def clear(self) -> None:
        with self._lock:
            for each in (self._ends, self._lags, self._topic_lags, self._behind):
                each.clear()
            self._followed.clear()

    def written(self, topic: str) -> Trend | None:
        """Records in a second."""
        with self._lock:
            return self._ends.rate(topic)

    def lag_of_group(self, group: str) -> Trend | None:
        with self._lock:
            return self._lags.level(group)

    def copied(self, copies: Copies) -> Pace:
        """How far moves are; this look is a sample."""
        with self._lock:
            return self._copying.add(time.monotonic(), copies)

    def lag_of_topic(self, topic: str) -> Trend | None:
        with self._lock:
            return self._topic_lags.level(topic)
