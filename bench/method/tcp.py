"""TCP's congestion control while brokers are measured over the loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SETTING: Final = Path("/proc/sys/net/ipv4/tcp_congestion_control")
DEFAULT: Final = "cubic"
"""Linux's own default. BBR spreads what is sent over time by a model of a long path. On the loopback it measures its
own timers: a loop that sends files sends a quarter of what it does with CUBIC, for four times the CPU."""


def congestion_control() -> str:
    """The one that new connections of this machine have; "?" where the system does not say."""
    try:
        return _SETTING.read_text().strip()
    except OSError:
        return "?"


@contextlib.contextmanager
def default_congestion_control() -> Iterator[None]:
    """Linux's default for the block, of both sides, where this process may set it."""
    before = congestion_control()
    with contextlib.suppress(OSError):
        _SETTING.write_text(DEFAULT)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _SETTING.write_text(before)
