"""The wall clock, behind an interface so that a simulation can own time.

Durations and timers use the running event loop (`loop.time`, `call_later`); only timestamps that are stored or sent
come from here. `elapsed_s` is for metrics alone: what a node does never depends on it.
"""

from __future__ import annotations

import time
from typing import Protocol

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.model import Millis


class Clock(Protocol):
    def now_ms(self) -> Millis:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    def now_ms(self) -> Millis:
        return wall_ms()


def elapsed_s() -> float:
    """Seconds from an arbitrary beginning, finer than the loop's time, which stands still within a turn."""
    if cython.compiled:  # the same as below, without a call of Python's
        clock_gettime(CLOCK_MONOTONIC, cython.address(now))  # type: ignore[name-defined] # noqa: F821
        found: float = now.tv_sec + now.tv_nsec * 1e-9  # type: ignore[name-defined] # noqa: F821
    else:
        found = time.perf_counter()
    return found


def wall_ms() -> Millis:
    """What `SystemClock` says, for compiled code."""
    if cython.compiled:  # without an object for the nanoseconds
        clock_gettime(CLOCK_REALTIME, cython.address(now))  # type: ignore[name-defined] # noqa: F821
        found: int = now.tv_sec * 1000 + now.tv_nsec // 1_000_000  # type: ignore[name-defined] # noqa: F821
    else:
        found = time.time_ns() // 1_000_000
    return found  # one for both: Cython warns of one behind a branch that always returns
