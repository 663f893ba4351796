"""Deadlines by key, for a core that has no clock: the driver asks for the next one and says when it is past.

A heartbeat moves a deadline further out, which is the common case and costs one dictionary write: the heap keeps the
old entry and puts the timer back when that comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final

from ottla.model import Millis

_NONE: Final = -(1 << 62)


class Timer:
    """One key: its deadline, and the time of its live heap entry, which is never later; `_NONE` for none."""

    __slots__ = ("deadline_ms", "key", "queued_ms")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.deadline_ms: Millis = _NONE
        self.queued_ms: Millis = _NONE


class Timers:
    """Times are milliseconds of a clock that never jumps."""

    __slots__ = ("_by_key", "_heap", "_sequence", "_size")

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Timer] = {}
        """**Invariant**: those with a deadline, or with a live heap entry, which the next deadline uses again."""
        self._heap: list[tuple[Millis, int, Timer]] = []
        """Entries of other times than their timer's are stale."""
        self._sequence = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: Hashable) -> bool:
        timer = self._by_key.get(key)
        return timer is not None and timer.deadline_ms != _NONE

    def deadlines(self) -> dict[Hashable, Millis]:
        """All of them by key; a copy."""
        return {key: timer.deadline_ms for key, timer in self._by_key.items() if timer.deadline_ms != _NONE}

    def move(self, timer: Timer, deadline_ms: Millis) -> bool:
        """Move the deadline that `schedule` has set, without looking for its key; False where it is not kept."""
        if timer.deadline_ms == _NONE:
            if timer.queued_ms == _NONE:
                return False
            self._size += 1
        timer.deadline_ms = deadline_ms
        if timer.queued_ms == _NONE or deadline_ms < timer.queued_ms:
            self._push(timer)
        return True

    def schedule(self, key: Hashable, deadline_ms: Millis) -> Timer:
        """Set or move the deadline of `key`."""
        timer = self._by_key.get(key)
        if timer is None:
            timer = self._by_key[key] = Timer(key)
        if timer.deadline_ms == _NONE:
            self._size += 1
        timer.deadline_ms = deadline_ms
        if timer.queued_ms == _NONE or deadline_ms < timer.queued_ms:
            self._push(timer)
        return timer

    def cancel(self, key: Hashable) -> None:
        timer = self._by_key.get(key)
        if timer is not None and timer.deadline_ms != _NONE:
            timer.deadline_ms = _NONE
            self._size -= 1

    def next_deadline(self) -> Millis | None:
        """When `expired` should be called next; None without timers."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_expired(self, now_ms: Millis) -> Hashable | None:
        """Remove and return the key of the earliest timer whose deadline is not after `now_ms`, or None."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        timer = heapq.heappop(self._heap)[2]
        timer.deadline_ms = timer.queued_ms = _NONE
        self._size -= 1
        del self._by_key[timer.key]
        return timer.key

    def _push(self, timer: Timer) -> None:
        timer.queued_ms = timer.deadline_ms
        self._sequence += 1
        heapq.heappush(self._heap, (timer.deadline_ms, self._sequence, timer))

    def _settle(self) -> None:
        """Make the top of the heap a live timer with its true deadline."""
        while self._heap:
            entry = self._heap[0]
            time_ms, timer = entry[0], entry[2]
            if timer.queued_ms == time_ms == timer.deadline_ms:
                return
            heapq.heappop(self._heap)
            if timer.queued_ms != time_ms:
                continue
            timer.queued_ms = _NONE
            if timer.deadline_ms != _NONE:
                self._push(timer)
            else:
                del self._by_key[timer.key]
