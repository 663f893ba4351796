"""Answers of the group coordinator that arrive later: for handlers that start no task for them, and for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ottla.server.api import Deferred, Response

Finish = Callable[[Mapping[str, Any]], Response]


class DeferredReply:
    """Stands before a `Deferred` and turns what the coordinator says into the response; errors pass as they are."""

    __slots__ = ("deferred", "finish")

    def __init__(self, finish: Finish) -> None:
        self.deferred = Deferred()
        self.finish = finish

    def complete(self, result: Mapping[str, Any] | BaseException) -> None:
        self.deferred.complete(result if isinstance(result, BaseException) else self.finish(result))


class AwaitedReply:
    """For a coroutine: what the coordinator says is `result`, an error is raised there."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()

    def complete(self, result: Mapping[str, Any] | BaseException) -> None:
        if self.result.done():  # nobody waits any more
            return
        if isinstance(result, BaseException):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)
