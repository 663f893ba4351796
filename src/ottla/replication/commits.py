"""Waiters for a log to reach an offset, in the order of these offsets.

Whoever moves the offset (a partition its high watermark, a quorum that of its log) completes those that it passed, and
fails all when they can wait no longer: each is told once, success or an error, and nobody else is looked at.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from operator import attrgetter

from ottla.errors import ErrorCode
from ottla.model import Offset

ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1

Done = Callable[[ErrorCode], None]
"""Called once with `none` or the error. It only takes note: whoever appends, or moves a high watermark, is in the
middle of something, so answers and decisions come in a later turn of the loop."""


class Wait:
    """A waiter for everything below `offset` to be there."""

    __slots__ = ("done", "offset")

    def __init__(self, offset: Offset, done: Done) -> None:
        self.offset = offset
        self.done: Done | None = done
        """None once it was called or nobody wants to know any more."""


class OffsetQueue:
    """The waits for one offset that only grows, the lowest first."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: deque[Wait] = deque()
        """Empty where nobody waits, which is asked for each append and fetch: not by a `__len__`, which is a call in
        Python of 700 instructions."""

    def add(self, offset: Offset, done: Done) -> Wait:
        wait = Wait(offset, done)
        waits = self.waits
        if waits and waits[-1].offset > offset:  # a duplicate waits for the original append
            insort(waits, wait, key=attrgetter("offset"))
        else:
            waits.append(wait)
        return wait

    def discard(self, wait: Wait) -> None:
        """Wait no longer; `done` is not called."""
        wait.done = None
        waits = self.waits
        while waits and waits[0].done is None:
            waits.popleft()

    def complete(self, reached: Offset, error: ErrorCode = ErrorCode.none) -> None:
        """Tell those at or below `reached`."""
        waits = self.waits
        while waits and waits[0].offset <= reached:
            _tell(waits.popleft(), error)

    def fail(self, error: ErrorCode) -> None:
        """Tell all."""
        waits, self.waits = self.waits, deque()
        for wait in waits:
            _tell(wait, error)

    def fail_above(self, offset: Offset, error: ErrorCode) -> None:
        """Tell those that wait for something above `offset`."""
        failed: list[Wait] = []
        waits = self.waits
        while waits and waits[-1].offset > offset:
            failed.append(waits.pop())
        for wait in reversed(failed):
            _tell(wait, error)


def _tell(wait: Wait, error: ErrorCode) -> None:
    done = wait.done
    if done is not None:
        wait.done = None
        done(error)
