"""Times until which records of a share-partition must not be delivered: back-offs, and times that the records name."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from ottla.model import Millis, Offset
from ottla.replication.share.config import Times
from ottla.replication.share.in_flight import Hold
from ottla.replication.share.window import Window

WAIT_MAX_MS: Final = 60_000
"""A record that waits for a time of the day is looked at again after this, for the clock may have been set."""

Backoff = tuple[Millis, Offset, Offset]
"""When a back-off ends, on the timer clock, and the first and last record that wait for it."""


class Waits:
    """Runs of a window that wait until a time, the earliest first. Some may not wait any more: nothing takes out what
    ends before its time."""

    __slots__ = ("_rows", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._rows: list[Backoff] = []
        """A heap."""

    def next_ms(self) -> Millis | None:
        """When the next one ends, on the timer clock."""
        return self._rows[0][0] if self._rows else None

    def add(self, wait_ms: Millis, first: Offset, last: Offset, rows_max: int) -> None:
        """Add a run. With more than `rows_max` of them, those that do not wait any more are dropped."""
        heappush(self._rows, (wait_ms, first, last))
        if len(self._rows) > rows_max:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Records that were archived while they waited, as the log was cut, leave their waits behind."""
        self._rows = [
            (run.hold.wait_ms, run.first, run.last)
            for batch in self._window.batches
            for run in batch.runs
            if run.hold is not None and not run.hold.is_behind_key
        ]
        heapify(self._rows)

    def pop_ended(self, now_ms: Millis) -> Backoff | None:
        """Take out the first one if its time has come."""
        return heappop(self._rows) if self._rows and self._rows[0][0] <= now_ms else None

    def backoffs(self) -> list[Backoff]:
        """The back-offs that have not ended, in the order of their records. Looks through the window."""
        return [
            (run.hold.wait_ms, run.first, run.last)
            for batch in self._window.batches
            for run in batch.runs
            if run.hold is not None and run.hold.wait_ms and not run.hold.due_ms
        ]


def hold_until(is_behind: bool, due_ms: Millis, wait_ms: Millis, times: Times) -> Hold:
    """The hold of a record that is due at a time of the day, and whose back-off ends at `wait_ms`, 0 for none."""
    due_ms = due_ms if due_ms > times.wall_ms else 0
    return Hold(is_behind, max(wait_ms, look_at(due_ms, times)), due_ms)


def look_at(due_ms: Millis, times: Times) -> Millis:
    """When to look again at what is due at a time of the day, on the timer clock."""
    return times.now_ms + min(due_ms - times.wall_ms, WAIT_MAX_MS) if due_ms else 0
