"""What was counted for one user of end offsets and lags."""

from __future__ import annotations

import threading
import time
from typing import Final

from ottla.console.copying import Copies, Copying, Pace
from ottla.console.history import History, Trend

ALL: Final = ""
"""The name of all topics together."""


class Trends:
    """What was counted for one user; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends, self._lags, self._topic_lags = History(), History(), History()
        self._copying = Copying()
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

    def clear(self) -> None:
        with self._lock:
            for each in (self._ends, self._lags, self._topic_lags):
                each.clear()

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
