"""From a frame to a response: header, version check, handler, errors.

Kafka's rules (ApiVersionsRequest, KafkaApis, SocketServer): an ApiVersions request of an unknown version is answered in
version 0 with UNSUPPORTED_VERSION (KIP-511); any other unknown API, version or garbled body closes the connection.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING

from ottla.drivers import cooperative
from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import Buffer
from ottla.protocol import messages, stepwise
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.server import api
from ottla.server.api import (
    Call,
    CloseConnection,
    Deferred,
    EncodedResponse,
    InOrder,
    LongRequest,
    RequestContext,
    Response,
    Slice,
)
from ottla.server.handlers import TABLE

if TYPE_CHECKING:
    from typing import Any

    from ottla.server.node import Node


_INT32 = struct.Struct(">i")
_REQUESTS = logging.getLogger("ottla.requests")


Outcome = Response | Deferred | Awaitable[Response] | InOrder


def begin(node: Node, connection: Any, frame: memoryview) -> tuple[Call, Outcome]:
    """Decode the request in `frame` and start its handler. Raises MalformedRequest or CloseConnection to close."""
    header = messages.read_header(frame)
    key, version = header.api_key, header.api_version
    served = TABLE.get(key)
    if served is None:
        raise MalformedRequest(f"API {key} is not served")
    context = RequestContext(
        node, key, version, header.correlation_id, header.client_id, connection.client_host, connection.listener_name,
        connection.principal, connection,
    )  # fmt: skip
    if not served.min_version <= version <= served.max_version:
        if key != ApiKey.API_VERSIONS:
            raise MalformedRequest(f"version {version} of {ApiKey(key).name} is not served")
        context.api_version = 0
        return Call(api.load(key), context, None), unsupported_api_versions()
    loaded = api.load(key)
    call = Call(loaded, context, None)
    if len(frame) > loaded.long_bytes:
        return call, InOrder(_long(call, connection.keep_frame(frame), header.body_offset))
    try:
        call.request = loaded.decode(version, frame, header.body_offset)
    except LongRequest:
        return call, InOrder(_long(call, connection.keep_frame(frame), header.body_offset))
    try:
        outcome = loaded.handle(context, call.request)
        if isinstance(outcome, Generator):
            outcome = cooperative.begin(outcome)
            if isinstance(outcome, Coroutine):
                return call, InOrder(_encoded_later(call, outcome))
    except Exception as error:
        return call, failure(call, error)
    if loaded.learn is not None:
        loaded.learn(context, call.request, frame)
    return call, outcome


async def _long(call: Call, frame: memoryview, offset: int) -> Outcome:
    """Decode, handle and encode in steps, so that others are served meanwhile."""
    loaded, context = call.api, call.context
    assert loaded.decode_in_steps is not None
    context.in_steps = True
    call.request = await run_yielding(loaded.decode_in_steps(context.api_version, frame, offset))
    try:
        outcome = loaded.handle(context, call.request)
    except Exception as error:
        return await _encoded(call, failure(call, error))
    return await _encoded_later(call, run_yielding(outcome) if isinstance(outcome, Generator) else _given(outcome))


async def _given(outcome: Outcome) -> Outcome:
    return outcome


async def _encoded_later(call: Call, handling: Coroutine[Any, Any, Outcome]) -> Outcome:
    """What `handling` gives, encoded; or to be awaited without holding back the next request."""
    try:
        outcome = await handling
        if isinstance(outcome, Awaitable) and not call.api.pipelined:
            outcome = await outcome
    except Exception as error:
        outcome = failure(call, error)
    return await _encoded(call, outcome)


async def _encoded(call: Call, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Mapping):
        return outcome
    context = call.context
    key, version = context.api_key, context.api_version
    try:
        body = await run_yielding(stepwise.encode_response(key, version, context.correlation_id, outcome))
    except Exception as error:
        return failure(call, error)
    await run_yielding(_counting(context, outcome))
    return EncodedResponse((body,))


def unsupported_api_versions() -> dict[str, Any]:
    served = TABLE[ApiKey.API_VERSIONS]
    return {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [
            {"api_key": ApiKey.API_VERSIONS, "min_version": served.min_version, "max_version": served.max_version}
        ],
    }


def failure(call: Call, error: BaseException) -> Response:
    """The error response for what a handler raised; an unexpected exception is told on stderr and to the client.

    Raises CloseConnection and MalformedRequest again: they close the connection.
    """
    if isinstance(error, CloseConnection | MalformedRequest):
        raise error
    if not isinstance(error, KafkaError):
        context = call.context
        which = fields(
            request=ApiKey(context.api_key).name, version=context.api_version,
            client=context.client_host, client_id=context.client_id,
        )  # fmt: skip
        _REQUESTS.error("a request failed", exc_info=error, extra=which)
        error = KafkaError(ErrorCode.unknown_server_error)
    response = call.api.on_error(call.context, call.request, error)
    if isinstance(response, EncodedResponse):  # what is in others is seen when they are encoded
        call.context.count_error(error.code)
    return response


def encode(call: Call, response: Response) -> tuple[list[Buffer | Slice], int]:
    """The parts of a whole response frame and their size in bytes."""
    context = call.context
    if isinstance(response, EncodedResponse):
        return [_INT32.pack(response.length), *response.parts], response.length + 4
    assert response is not None
    try:
        body = messages.encode_response(context.api_key, context.api_version, context.correlation_id, response)
    except Exception as error:
        instead = failure(call, error)
        assert instead is not None and not isinstance(instead, EncodedResponse)
        body = messages.encode_response(context.api_key, context.api_version, context.correlation_id, instead)
        response = instead
    count_errors(context, response)
    return [_INT32.pack(len(body)) + body], len(body) + 4


def count_errors(context: RequestContext, response: Mapping[str, Any]) -> None:
    """Every error code of an answer, of the whole and of the parts in it."""
    for name, value in response.items():
        if name == "error_code":
            if value:
                context.count_error(value)
        elif isinstance(value, list | tuple):
            for part in value:
                if not isinstance(part, Mapping):
                    break
                count_errors(context, part)


def _counting(context: RequestContext, response: Mapping[str, Any]) -> Generator[int, None, None]:
    """The same in steps."""
    for name, value in response.items():
        if name == "error_code":
            if value:
                context.count_error(value)
        elif isinstance(value, list | tuple):
            for part in value:
                if not isinstance(part, Mapping):
                    break
                yield 1
                yield from _counting(context, part)
