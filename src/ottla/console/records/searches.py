"""Readings that are going on, by an id that the browser chose: how far each is, and its end before its time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ottla.console.records.local_logs import LocalLogs
from ottla.console.records.reading import Limits, Record, Turns

READS_AT_ONCE: Final = 8
"""Partitions that one search reads at the same time; the others wait."""
ROUNDS_AT_ONCE: Final = 8
"""Tails that look for news at the same time, in threads apart from those of pages."""
RUNNING_MAX: Final = 1_000
"""Beyond, a further reading has no progress and ends with its page."""
_ID: Final = re.compile(r"[0-9A-Za-z-]{8,64}")


@dataclass(frozen=True)
class Running:
    limits: Limits
    halt: threading.Event
    began: float
    """By the monotonic clock."""
    topic: str
    show: Callable[[Record], Any]
    """A record as this user may see it."""

    def as_json(self) -> dict[str, Any]:
        """How far it is. Counts are texts, as everywhere."""
        return {
            "scanned": str(self.limits.records_read),
            "bytes": str(self.limits.bytes_read),
            "seconds": round(time.monotonic() - self.began, 1),
            "matches": str(self.limits.matches),
        }

    def first(self) -> list[Any]:
        """The first matches, as they are shown."""
        return [self.show(each) for each in list(self.limits.first)]


class Searches:
    """The readings of all users; from any thread. A user finds those of that user only."""

    def __init__(self, log_dirs: Sequence[str] = ()) -> None:
        """`log_dirs` are log directories of nodes on this machine."""
        self.files = LocalLogs(log_dirs)
        self._lock = threading.Lock()
        self.turns = Turns()
        self.rounds = ThreadPoolExecutor(ROUNDS_AT_ONCE, "console tail")
        self._running: dict[tuple[str | None, str], Running] = {}

    @contextmanager
    def running(
        self,
        user: str | None,
        run: str,
        limits: Limits,
        halt: threading.Event,
        topic: str = "",
        show: Callable[[Record], Any] = lambda record: record,
    ) -> Iterator[None]:
        """While the block reads, others may ask for it by `run`; an id that cannot be is passed over."""
        key = user, run
        mine = Running(limits, halt, time.monotonic(), topic, show)
        if _ID.fullmatch(run):
            with self._lock:
                if len(self._running) < RUNNING_MAX:
                    self._running[key] = mine
        try:
            yield
        finally:
            with self._lock:
                if self._running.get(key) is mine:
                    del self._running[key]

    def find(self, user: str | None, run: str) -> Running | None:
        with self._lock:
            return self._running.get((user, run))

    def threads(self) -> Executor:
        """For one search, which shuts it down."""
        return ThreadPoolExecutor(READS_AT_ONCE, "console search")

    def close(self) -> None:
        self.rounds.shutdown(wait=False, cancel_futures=True)
