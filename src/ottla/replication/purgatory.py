"""Requests that wait for a partition: fetches for bytes, produce requests for commits (Kafka's purgatories).

Kafka recomputes what each waiting fetch could read whenever a partition changes. Here a fetch counts down: it knows how
many bytes it lacks when it begins to wait, and every advance of a high watermark of one of its partitions tells it how
many came. What it may really see (transactions, leadership) is decided by the read that follows; if that is too
little, it waits again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.errors import ErrorCode
from ottla.model import LeaderEpoch, Offset
from ottla.replication.commits import ACKS_ALL, Done, Wait

EVERYBODY = 1 << 62
"""So many bytes that every waiting fetch looks again."""


class Waitable(Protocol):
    waiters: dict[DelayedFetch, None]
    """For bytes below the high watermark."""
    end_waiters: dict[DelayedFetch, None]
    """For bytes below the log end, as followers do."""


class DelayedFetch:
    """One fetch in the purgatory, entered at every partition that it asks for."""

    __slots__ = ("_entered", "_ready", "lacking")

    def __init__(
        self,
        partitions: Iterable[Waitable],
        lacking: int,
        ready: Callable[[], None],
        *,
        at_end: bool = False,
        session: dict[DelayedFetch, None] | None = None,
    ) -> None:
        """`at_end`: it is a follower's, and waits for the log end. `session`: the fetches that wait for the partitions
        of a session of which nothing else is to be seen; it is told of them by `join`."""
        self._entered = [each.end_waiters if at_end else each.waiters for each in partitions]
        if session is not None:
            self._entered.append(session)
        self.lacking = lacking
        """Bytes still missing to the fetch's min_bytes; positive while it waits."""
        self._ready = ready
        for waiters in self._entered:
            waiters[self] = None

    def join(self, waiters: dict[DelayedFetch, None]) -> None:
        """Wait there too: a partition of the session has changed, and may change again."""
        if self not in waiters:
            waiters[self] = None
            self._entered.append(waiters)

    def on_bytes(self, count: int) -> None:
        """`count` bytes were committed to one of its partitions. Calls `ready` once, when that is enough."""
        if self.lacking > 0:
            self.lacking -= count
            if self.lacking <= 0:
                self._ready()

    def leave(self) -> None:
        """No longer wait anywhere. May be called twice."""
        for waiters in self._entered:
            waiters.pop(self, None)
        self._entered = []
        self.lacking = 0


def notify(waiters: dict[DelayedFetch, None], size_bytes: int) -> None:
    """`size_bytes` more can be fetched."""
    for waiter in list(waiters):
        waiter.on_bytes(size_bytes)


class AppendedTo(Protocol):
    """A partition as a waiting produce request sees it."""

    @property
    def sole_in_sync(self) -> bool:
        """Whether no commit depends on other replicas than this one."""

    def wait(self, end_offset: Offset, leader_epoch: LeaderEpoch, acks: int, done: Done) -> Wait | None: ...
    def stop_waiting(self, wait: Wait) -> None: ...


def _nothing() -> None:
    """In place of what was to be called."""


class _Row:
    """One partition of a waiting produce request."""

    __slots__ = ("fail", "owner", "partition", "wait")

    def __init__(self, owner: DelayedProduce, partition: AppendedTo, fail: Done) -> None:
        self.owner = owner
        self.partition = partition
        self.fail = fail
        self.wait: Wait | None = None

    def settle(self, error: ErrorCode) -> None:
        if error:
            self.fail(error)
        self.owner.settled(self)


class DelayedProduce:
    """One produce request in the purgatory: done when each of its appends is as safe as it asked for, or cannot be."""

    __slots__ = ("_ready", "_rows", "_sealed", "acks")

    def __init__(self, acks: int, ready: Callable[[], None]) -> None:
        self.acks = acks
        self._ready = ready
        self._rows: dict[_Row, None] = {}
        """Appends of which nothing is known yet."""
        self._sealed = False

    def add(self, partition: AppendedTo, end_offset: Offset, leader_epoch: LeaderEpoch, fail: Done) -> None:
        """Wait for an append; `fail` is called with the error, and not at all where there is none."""
        row = _Row(self, partition, fail)
        self._rows[row] = None
        row.wait = partition.wait(end_offset, leader_epoch, self.acks, row.settle)

    def seal(self) -> bool:
        """Everything is appended; returns whether there is anything to wait for. `ready` is called later if so."""
        self._sealed = True
        return bool(self._rows)

    def settled(self, row: _Row) -> None:
        """For its rows: this one is known."""
        if self._rows.pop(row, row) is None and not self._rows and self._sealed:
            ready, self._ready = self._ready, _nothing  # else it and the request keep each other in memory
            ready()

    def leave(self) -> None:
        """Stop waiting; the result is no longer needed."""
        for row in self._rows:
            if row.wait is not None:
                row.partition.stop_waiting(row.wait)
        self._rows.clear()
        self._ready = _nothing

    def expire(self) -> bool:
        """The request's time is over: REQUEST_TIMED_OUT for what still waits for other replicas; returns whether
        something goes on waiting.

        The disk of this one gets all the time that it needs, as in Kafka, where the append itself fsyncs.
        """
        for row in list(self._rows):
            if self.acks == ACKS_ALL and not row.partition.sole_in_sync:
                if row.wait is not None:
                    row.partition.stop_waiting(row.wait)
                row.settle(ErrorCode.request_timed_out)
        return bool(self._rows)
