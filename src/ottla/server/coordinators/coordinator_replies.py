"""Answers of the group coordinator that arrive later: for handlers that start no task for them, and for others."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.protocol import messages
from ottla.protocol.messages import response_header
from ottla.server.api import Deferred, EncodedResponse, RequestContext, Response

if TYPE_CHECKING:
    from ottla.coordinator.group.requests import GroupRequest
    from ottla.drivers.coordinators.group_coordinator import GroupCoordinatorDriver

Finish = Callable[[Any], Response]
Encode = Callable[[int, Mapping[str, Any], bytes], bytes]
"""Encoder of one API: writes a response in a version, after its header."""

_pack_start = struct.Struct(">ii").pack
"""Encodes the start of a frame: its length, and its correlation id."""


class DeferredReply:
    """Stands before a `Deferred` and turns what the coordinator says into the response; errors pass as they are."""

    __slots__ = ("deferred", "finish")

    def __init__(self, finish: Finish) -> None:
        self.deferred = Deferred()
        self.finish = finish

    def complete(self, result: Mapping[str, Any] | BaseException) -> None:
        self.deferred.complete(result if isinstance(result, BaseException) else self.finish(result))

    def ask(self, groups: GroupCoordinatorDriver, request: GroupRequest) -> Deferred:
        """Ask the group coordinator; an error that it raises is the answer, as one that a handler raises."""
        try:
            groups.ask(self, request)
        except Exception as error:
            self.deferred.complete(error)
        return self.deferred


def encoded(context: RequestContext, encode: Encode, response: Mapping[str, Any]) -> EncodedResponse:
    header = response_header(context.api_key, context.api_version, context.correlation_id)
    return EncodedResponse([encode(context.api_version, response, header)])


def framed(context: RequestContext, encode: Encode, response: Mapping[str, Any]) -> bytes:
    """The same as one whole frame, which is sent as it is."""
    end = b"\0" if messages.is_flexible(context.api_key, context.api_version) else b""  # of the header
    body = encode(context.api_version, response, end)
    return _pack_start(len(body) + 4, context.correlation_id) + body


class EncodedReply(Deferred):
    """Encodes what the coordinator says, and counts the error in it. It stands before no other object: a rebalance of a
    thousand members has two thousand of them."""

    __slots__ = ("_context", "_encode")

    def __init__(self, context: RequestContext, encode: Encode) -> None:
        # Written out: a call of the base's would go through Python.
        self.done = self.cancelled = False
        self.result = self.slot = self.on_complete = self.on_cancel = None
        self._context = context
        self._encode = encode

    def complete(self, result: Any) -> None:
        """With what the coordinator says, or an error."""
        if not isinstance(result, BaseException):
            if result["error_code"]:
                self._context.count_error(result["error_code"])
            result = framed(self._context, self._encode, result)
        Deferred.complete(self, result)

    def ask(self, groups: GroupCoordinatorDriver, request: GroupRequest) -> Deferred:
        """As `DeferredReply.ask`."""
        try:
            groups.ask(self, request)
        except Exception as error:
            Deferred.complete(self, error)
        return self
