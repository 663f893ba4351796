"""Deadlines by key, for a core that has no clock: the driver asks for the next one and says when it is past.

A heartbeat moves a deadline further out, which is the common case and costs one dictionary write: the heap keeps the
old entry and puts the timer back when that comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from ottla.model import Millis


class Timers:
    """Times are milliseconds of a clock that never jumps."""

    __slots__ = ("_deadlines", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[Hashable, Millis] = {}
        self._queued: dict[Hashable, Millis] = {}
        """The time of each key's live heap entry, never later than its deadline; entries of other times are stale."""
        self._heap: list[tuple[Millis, int, Hashable]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deadlines

    def schedule(self, key: Hashable, deadline_ms: Millis) -> None:
        """Set or move the deadline of `key`."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)

    def next_deadline(self) -> Millis | None:
        """When `expired` should be called next; None without timers."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_expired(self, now_ms: Millis) -> Hashable | None:
        """Remove and return the key of the earliest timer whose deadline is not after `now_ms`, or None."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._queued[key]
        del self._deadlines[key]
        return key

    def _push(self, key: Hashable, time_ms: Millis) -> None:
        self._queued[key] = time_ms
        self._sequence += 1
        heapq.heappush(self._heap, (time_ms, self._sequence, key))

    def _settle(self) -> None:
        """Make the top of the heap a live timer with its true deadline."""
        while self._heap:
            time_ms, _, key = self._heap[0]
            if self._queued.get(key) != time_ms:
                heapq.heappop(self._heap)
                continue
            deadline = self._deadlines.get(key)
            if deadline == time_ms:
                return
            heapq.heappop(self._heap)
            del self._queued[key]
            if deadline is not None:
                self._push(key, deadline)
