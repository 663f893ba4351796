"""Produce requests for one partition that wait until their append is committed, as most requests of a cluster do.

`WaitingProduce` does the same for any request. Here what the requests of a connection have in common is kept once: the
call that they are counted by and the timer, which looks at the earliest deadline of all that wait; and the answer was
made with the append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.errors import ErrorCode
from ottla.replication.commits import ACKS_ALL, Wait
from ottla.replication.partition import Partition
from ottla.replication.replica_log import Appended
from ottla.server.api import Call, Deferred, Response

EXPIRY_SECONDS_MIN = 1.0
"""How often a request whose time is over, and that waits for the disk only, looks whether that is still so."""

TIMER_SECONDS_MAX = 30.0
"""A timer is not stopped when nobody waits any more, and keeps its connection for so long; the default timeout of a
request."""

Fail = Callable[[ErrorCode], Response]


class WaitingAppend(Deferred):
    """One append and its answer."""

    __slots__ = ("_answer", "_error", "_fail", "_waits", "deadline", "partition", "timeout_s", "wait")

    def __init__(self, waits: WaitingAppends, partition: Partition, timeout_s: float, answer: bytes, fail: Fail):
        super().__init__(self.leave)
        self._waits = waits
        self._answer = answer
        self._fail = fail
        """Makes the answer with an error."""
        self._error = ErrorCode.none
        self.partition = partition
        self.timeout_s = timeout_s
        self.deadline = 0.0
        """Deadline in the loop's time; for acks=all only."""
        self.wait: Wait | None = None

    def settle(self, error: ErrorCode) -> None:
        """The append is as safe as was asked, or cannot be."""
        self._error = error
        self._waits.settled(self)

    def answer(self) -> None:
        try:
            result: Any = self._fail(self._error) if self._error else self._answer
        except Exception as error:
            result = error
        self.complete(result)

    def leave(self) -> None:
        """The client is gone; what was appended becomes committed all the same."""
        if self.wait is not None:
            self.partition.stop_waiting(self.wait)
        self._waits.left(self)


class WaitingAppends:
    """Waiting appends of one connection, in one version of the API."""

    __slots__ = ("_by_time", "_call", "_loop", "_timer", "_timer_at")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._by_time: dict[WaitingAppend, None] = {}
        """Appends that have a deadline."""
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0

    def add(
        self, partition: Partition, info: Appended, acks: int, timeout_ms: int, answer: bytes, fail: Fail
    ) -> tuple[Call, Deferred]:
        """Answer with `answer`, a whole frame, when the append is as safe as `acks` asks for, or with what `fail` makes
        of the error."""
        waiting = WaitingAppend(self, partition, max(timeout_ms, 0) / 1000, answer, fail)
        if acks == ACKS_ALL:
            self._by_time[waiting] = None
            self._watch(waiting, waiting.timeout_s)
        waiting.wait = partition.wait(info.last_offset + 1, info.leader_epoch, acks, waiting.settle)
        return self._call, waiting

    def settled(self, waiting: WaitingAppend) -> None:
        # Not at once: whoever moves a high watermark is in the middle of something.
        self._by_time.pop(waiting, None)
        session = self._call.context.session
        if session is None:
            self._loop.call_soon(waiting.answer)
        else:
            session.answer_together(waiting.answer)

    def left(self, waiting: WaitingAppend) -> None:
        self._by_time.pop(waiting, None)
        if not self._by_time and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, waiting: WaitingAppend, seconds: float) -> None:
        now = self._loop.time()
        waiting.deadline = now + seconds
        if self._timer is None or waiting.deadline < self._timer_at:
            self._set_timer(min(waiting.deadline, now + TIMER_SECONDS_MAX))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        """The time of some may be over: REQUEST_TIMED_OUT, but not for those that wait for this node's disk only, which
        gets all the time that it needs, as in Kafka, where the append itself fsyncs."""
        self._timer = None
        now = self._loop.time()
        for waiting in [each for each in self._by_time if each.deadline <= now]:
            if not waiting.partition.sole_in_sync:
                if waiting.wait is not None:
                    waiting.partition.stop_waiting(waiting.wait)
                waiting.settle(ErrorCode.request_timed_out)
            else:
                waiting.deadline = now + max(waiting.timeout_s, EXPIRY_SECONDS_MIN)
        if self._by_time:
            earliest = min(each.deadline for each in self._by_time)
            self._set_timer(min(earliest, now + TIMER_SECONDS_MAX))
