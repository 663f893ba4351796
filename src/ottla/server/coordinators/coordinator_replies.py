"""Answers of the group coordinator that arrive later: for handlers that start no task for them, and for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ottla.protocol.messages import response_header
from ottla.server.api import Deferred, EncodedResponse, RequestContext, Response

Finish = Callable[[Any], Response]
Encode = Callable[[int, Mapping[str, Any], bytes], bytes]
"""Encoder of one API: writes a response in a version, after its header."""


class DeferredReply:
    """Stands before a `Deferred` and turns what the coordinator says into the response; errors pass as they are."""

    __slots__ = ("deferred", "finish")

    def __init__(self, finish: Finish) -> None:
        self.deferred = Deferred()
        self.finish = finish

    def complete(self, result: Mapping[str, Any] | BaseException) -> None:
        self.deferred.complete(result if isinstance(result, BaseException) else self.finish(result))


def encoded(context: RequestContext, encode: Encode, response: Mapping[str, Any]) -> EncodedResponse:
    header = response_header(context.api_key, context.api_version, context.correlation_id)
    return EncodedResponse([encode(context.api_version, response, header)])


def encoded_reply(context: RequestContext, encode: Encode) -> DeferredReply:
    """Encodes what the coordinator says, and counts the error in it."""

    def finish(response: Mapping[str, Any]) -> EncodedResponse:
        if response["error_code"]:
            context.count_error(response["error_code"])
        return encoded(context, encode, response)

    return DeferredReply(finish)


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
