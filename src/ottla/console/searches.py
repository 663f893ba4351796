"""Readings that are going on, by an id that the browser chose: how far each is, and its end before its time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ottla.console.reading import Limits

RUNNING_MAX: Final = 1_000
"""Beyond, a further reading has no progress and ends with its page."""
_ID: Final = re.compile(r"[0-9A-Za-z-]{8,64}")


@dataclass(frozen=True)
class Running:
    limits: Limits
    halt: threading.Event
    began: float
    """By the monotonic clock."""

    def as_json(self) -> dict[str, Any]:
        """How far it is. Counts are texts, as everywhere."""
        return {
            "scanned": str(self.limits.records_read), "bytes": str(self.limits.bytes_read),
            "seconds": round(time.monotonic() - self.began, 1),
        }  # fmt: skip


class Searches:
    """The readings of all users; from any thread. A user finds those of that user only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[str | None, str], Running] = {}

    @contextmanager
    def running(self, user: str | None, run: str, limits: Limits, halt: threading.Event) -> Iterator[None]:
        """While the block reads, others may ask for it by `run`; an id that cannot be is passed over."""
        key = user, run
        mine = Running(limits, halt, time.monotonic())
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
