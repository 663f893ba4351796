"""Threads for steps of a login that take longer than the event loop can wait: Kerberos tickets, keys of long curves.

They are not those of the disks: thousands of clients that come back together wait for each other, and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

LOGINS_AT_ONCE: Final = 2
"""Mostly a processor's work, of which one second does some thousand steps."""


class LoginThreads:
    """A pool for one listener, made with the first such step."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """The result of something that blocks."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(LOGINS_AT_ONCE, "ottla-login")
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """The threads end once what they were given is done."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
