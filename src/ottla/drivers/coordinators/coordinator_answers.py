"""Answers of a coordinator on their way to the waiters.

An answer may run the next request of its connection at once. So answers are queued while effects are worked off, and
sent when all of them are: that request finds a shard between two calls, never between two steps of one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.coordinator.effects import Reply, Token
from ottla.errors import KafkaError

ANSWERS_PER_TURN: Final = 32
"""A millisecond or two of encoding and sending; those of a large group's rebalance are spread over many turns."""


class Failure(NamedTuple):
    """An error instead of a `Reply`."""

    token: Token
    response: KafkaError


Answer: TypeAlias = Reply | Failure
"""What it rests on is decided and, if necessary, in the log."""


class Answers:
    """All methods belong to the event loop's thread."""

    __slots__ = ("_is_sending", "_later", "due")

    def __init__(self) -> None:
        self.due: deque[Answer] = deque()
        """Answers that are sent at the end of the call under way."""
        self._is_sending = False
        self._later: deque[Answer] = deque()
        """Answers beyond ANSWERS_PER_TURN of one decision; they are sent in the next turns of the loop."""

    def send(self) -> None:
        """Send the answers that are due: the last step of a call. A request that one of them runs calls this in turn.
        The loop that is under way sends its answer, too: answers within answers would need a stack for all of them."""
        due = self.due
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while due:
                answer = due.popleft()
                answer.token.complete(answer.response)
        finally:
            self._is_sending = False
            if due:  # one raised; the others are not to wait for ever
                self.send_soon()

    def send_soon(self) -> None:
        """Send the answers that are due in the next turn of the loop, unless a call does so before: the caller has
        still something to decide."""
        if self.due:
            asyncio.get_running_loop().call_soon(self.send)

    def send_later(self, answer: Answer) -> None:
        """The state is changed already, so nothing depends on when an answer leaves: each client waits for its own."""
        if not self._later:
            asyncio.get_running_loop().call_soon(self._send_some)
        self._later.append(answer)

    def _send_some(self) -> None:
        some = [self._later.popleft() for _ in range(min(ANSWERS_PER_TURN, len(self._later)))]
        if self._later:
            asyncio.get_running_loop().call_soon(self._send_some)
        self.due += some
        self.send()


class AwaitedReply:
    """For a coroutine: what the coordinator says is `result`, an error is raised there."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: asyncio.Future[Mapping[Any, Any]] = asyncio.get_running_loop().create_future()

    def complete(self, result: Mapping[Any, Any] | BaseException) -> None:
        if self.result.done():  # nobody waits any more
            return
        if isinstance(result, BaseException):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)
