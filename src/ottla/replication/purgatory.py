"""Fetches that wait until enough bytes can be read (Kafka's DelayedFetch).

Kafka recomputes what each waiting fetch could read whenever a partition changes. Here a fetch counts down: it knows how
many bytes it lacks when it begins to wait, and every append to one of its partitions tells it how many came. What it
may really see (transactions, leadership) is decided by the read that follows; if that is too little, it waits again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol


class Waitable(Protocol):
    waiters: dict[DelayedFetch, None]


class DelayedFetch:
    """One fetch in the purgatory, entered at every partition that it asks for."""

    __slots__ = ("_partitions", "_ready", "lacking")

    def __init__(self, partitions: Iterable[Waitable], lacking: int, ready: Callable[[], None]) -> None:
        self._partitions = tuple(partitions)
        self.lacking = lacking
        """Bytes still missing to the fetch's min_bytes; positive while it waits."""
        self._ready = ready
        for partition in self._partitions:
            partition.waiters[self] = None

    def on_bytes(self, count: int) -> None:
        """`count` bytes were committed to one of its partitions. Calls `ready` once, when that is enough."""
        if self.lacking > 0:
            self.lacking -= count
            if self.lacking <= 0:
                self._ready()

    def leave(self) -> None:
        """No longer wait anywhere. May be called twice."""
        for partition in self._partitions:
            partition.waiters.pop(self, None)
        self._partitions = ()
        self.lacking = 0
