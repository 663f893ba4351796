"""Threads of searches: beside a broker they run when nothing else on the machine wants the processor.

A broker that wakes up takes the processor from such a thread at once. A thread that only is nicer (`nice`) first ends
its slice, a millisecond and more, and a producer waits for that.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor


def yield_processor() -> None:
    """For this thread alone, and until it ends: there is no way back without privileges. Linux only. On a machine that
    has more to do than processors it would never be its turn, so there it stays as it is."""
    if hasattr(os, "SCHED_IDLE") and os.getloadavg()[0] <= (os.cpu_count() or 1):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def threads(count: int, *, yields: bool) -> ThreadPoolExecutor:
    """For one search: the machine may be busier when the next one comes."""
    return ThreadPoolExecutor(count, "console search", initializer=yield_processor if yields else None)
