"""Produce requests that wait until their appends are committed, as most requests of a cluster do.

`WaitingProduce` is for any request. `WaitingAppends` is for requests for one partition: what those of a connection have
in common is kept once, the call that they are counted by and the timer, which looks at the earliest deadline of all
that wait; and the answer was made with the append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.replication.commits import Wait
from ottla.replication.partition import ACKS_ALL, ACKS_NONE, Partition
from ottla.replication.purgatory import DelayedProduce
from ottla.replication.replica_log import Appended
from ottla.server.api import Call, Deferred, RequestContext, Response
from ottla.server.produce.produce_answers import answer_of

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

EXPIRY_SECONDS_MIN = 1.0
"""How often a request whose time is over, and that waits for the disk only, looks whether that is still so."""

TIMER_SECONDS_MAX = 30.0
"""A timer is not stopped when nobody waits any more, and keeps its connection for so long; the default timeout of a
request."""

Fail = Callable[[ErrorCode], Response]


def must_wait(partition: Partition, info: Appended, acks: int) -> bool:
    """Whether the answer to an append has to wait: for the commit, or without acks=all for the own disk."""
    if acks == ACKS_ALL:
        return info.last_offset >= partition.log.high_watermark
    return acks != ACKS_NONE and info.needs_flush


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


class WaitingProduce:
    """A produce request some of whose appends are not yet as safe as they have to be."""

    __slots__ = ("_context", "_deferred", "_delayed", "_timeout_s", "_timer", "_topics")

    def __init__(self, context: RequestContext, acks: int, timeout_ms: int) -> None:
        self._context = context
        self._delayed = DelayedProduce(acks, self._ready)
        self._deferred = Deferred(self._cancel)
        self._timeout_s = max(timeout_ms, 0) / 1000
        self._timer: asyncio.Handle | None = None
        self._topics: list[TopicProduceResponse] = []

    def add(self, partition: Partition, info: Appended, answer: PartitionProduceResponse) -> None:
        def fail(error: ErrorCode) -> None:
            partition.traffic.failed_produces += 1
            answer["error_code"] = error
            answer["base_offset"] = answer["log_append_time"] = answer["log_start_offset"] = -1

        self._delayed.add(partition, info.last_offset + 1, info.leader_epoch, fail)

    def outcome(self, topics: list[TopicProduceResponse]) -> Deferred | ProduceResponse:
        """The answer, or what will be it."""
        self._topics = topics
        if not self._delayed.seal():
            return answer_of(self._context, topics)
        if self._delayed.acks == ACKS_ALL:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire)
        return self._deferred

    def _ready(self) -> None:
        # Not at once: whoever moves a high watermark is in the middle of something.
        session = self._context.session
        if session is None:
            asyncio.get_running_loop().call_soon(self._answer)
        else:
            session.answer_together(self._answer)

    def _answer(self) -> None:
        self._stop_timer()
        self._deferred.complete(answer_of(self._context, self._topics))

    def _cancel(self) -> None:
        """The client is gone; what was appended becomes committed all the same."""
        self._stop_timer()
        self._delayed.leave()

    def _expire(self) -> None:
        self._timer = None
        if self._delayed.expire():
            again_s = max(self._timeout_s, EXPIRY_SECONDS_MIN)
            self._timer = asyncio.get_running_loop().call_later(again_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
