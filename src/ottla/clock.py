"""The wall clock, behind an interface so that a simulation can own time.

Durations and timers use the running event loop (`loop.time`, `call_later`); only time stamps that are stored or sent
come from here.
"""

from __future__ import annotations

import time
from typing import Protocol

from ottla.model import Millis


class Clock(Protocol):
    def now_ms(self) -> Millis:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    def now_ms(self) -> Millis:
        return time.time_ns() // 1_000_000
