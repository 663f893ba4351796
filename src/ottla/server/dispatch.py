"""Turns a frame into a response: header, version check, handler, errors.

Kafka's rules (ApiVersionsRequest, KafkaApis, SocketServer): an ApiVersions request of an unknown version is answered in
version 0 with UNSUPPORTED_VERSION (KIP-511); any other unknown API, version or garbled body closes the connection.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Coroutine, Generator, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ottla.drivers import cooperative
from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import Buffer
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest, RemovedVersion
from ottla.server.api import (
    LARGE_REQUEST_BYTES,
    Call,
    CloseConnection,
    Deferred,
    Handling,
    InOrder,
    LongRequest,
    Outcome,
    RequestContext,
    Response,
    Session,
)
from ottla.server.connections.long_answers import RowsOf
from ottla.server.connections.outbox import EncodedResponse
from ottla.server.handlers import TABLE
from ottla.steps import at_once

if TYPE_CHECKING:
    from ottla.replication.replica_log import Slice
    from ottla.server.connections.decoded_rows import Claim
    from ottla.server.ports import NodePorts


_INT32 = struct.Struct(">i")
_REQUESTS = logging.getLogger("ottla.requests")


_ARRAYS = frozenset({list, tuple, RowsOf})
"""Types of the arrays in an answer, looked up: `isinstance` of an abstract class is slow for each number in it."""

_NEVER_WAIT = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH})
"""Requests that wait for something themselves, or that others wait for, and whose rows are few beside their bytes."""


def begin(node: NodePorts, connection: Session, frame: memoryview) -> tuple[Call, Outcome]:
    """Decode the request in `frame` and start its handler. Raises MalformedRequest or CloseConnection to close."""
    header = messages.read_header(frame)
    key, version = header.api_key, header.api_version
    apis = connection.apis
    served = apis.table.get(key)
    if served is None:
        raise MalformedRequest(f"API {key} is not supported")
    context = RequestContext(
        node,
        key,
        version,
        header.correlation_id,
        header.client_id,
        connection.client_host,
        connection.listener_name,
        connection.principal,
        connection,
    )
    context.body_offset = header.body_offset
    if not served.min_version <= version <= served.max_version:
        if key != ApiKey.API_VERSIONS:
            raise _unsupported(context)
        context.api_version = 0
        return Call(apis.load(key), context, None), unsupported_api_versions()
    loaded = apis.load(key)
    call = Call(loaded, context, None)
    if len(frame) > loaded.long_bytes:
        return call, InOrder(_long(call, connection.keep_frame(frame), header.body_offset))
    try:
        call.request = loaded.decode(version, frame, header.body_offset)
    except LongRequest:
        return call, InOrder(_long(call, connection.keep_frame(frame), header.body_offset))
    except RemovedVersion:
        raise _unsupported(context) from None
    try:
        outcome = loaded.handle(context, call.request)
        if type(outcome) is EncodedResponse or isinstance(outcome, Deferred):
            pass  # most of what is asked often; `isinstance` of an abstract class is slow
        elif isinstance(outcome, Generator):
            outcome = cooperative.begin(outcome)
            if isinstance(outcome, Coroutine):
                return call, InOrder(_encoded_later(call, outcome))
        elif type(outcome) is CoroutineType and not loaded.pipelined:
            return call, _encoded_if_long(call, outcome)
    except Exception as error:
        return call, failure(call, error)
    if loaded.learn is not None:
        loaded.learn(context, call.request, frame)
    return call, outcome


def _unsupported(context: RequestContext) -> MalformedRequest:
    from ottla.server.legacy.refusals import unsupported  # rare

    return unsupported(context)


async def answer(call: Call) -> bytes:
    """The whole response to a request that did not come by itself over a connection (Envelope), without its length.

    Raises KafkaError (NOT_CONTROLLER) where the request is to be asked again elsewhere.
    """
    elsewhere: list[KafkaError] = []
    outcome = await _encoded_later(call, _answered(call, elsewhere))
    if elsewhere:
        raise elsewhere[0]
    assert isinstance(outcome, EncodedResponse)
    return b"".join(part if isinstance(part, bytes) else bytes(part) for part in outcome.parts)


async def _answered(call: Call, elsewhere: list[KafkaError]) -> Any:
    try:
        outcome: Any = await _handled(call)
        while isinstance(outcome, Awaitable):
            outcome = await outcome
        return outcome
    except KafkaError as error:
        if error.code == ErrorCode.not_controller:
            elsewhere.append(error)
        raise


async def _long(call: Call, frame: memoryview, offset: int) -> Outcome:
    """Decode, handle and encode in steps, so that others are served meanwhile. Large requests of clients wait for room
    for their rows."""
    loaded, session = call.api, call.context.session
    is_small = len(frame) <= LARGE_REQUEST_BYTES or loaded.key in _NEVER_WAIT
    if is_small or session is None or not session.apis.of_clients:
        return await _in_steps(call, frame, offset, None)
    from ottla.server.connections.decoded_rows import with_claim  # most nodes do without

    return await with_claim(len(frame), lambda claim: _in_steps(call, frame, offset, claim))


async def _in_steps(call: Call, frame: memoryview, offset: int, claim: Claim | None) -> Outcome:
    loaded, context = call.api, call.context
    assert loaded.decode_in_steps is not None
    context.in_steps = True
    steps = loaded.decode_in_steps(context.api_version, frame, offset)
    if claim is not None:
        from ottla.server.connections.decoded_rows import lowering

        steps = lowering(claim, steps)
    await run_yielding(_decoding(call, steps))
    outcome = await _encoded_later(call, _handled(call))
    if not loaded.pipelined:
        from ottla.server.connections.incremental_free import free_in_steps  # an idle node does without

        held = [call.request]
        call.request = None
        await run_yielding(free_in_steps(held))
    return outcome


def _decoding(call: Call, steps: Generator[int, None, Any]) -> Generator[int, None, None]:
    """Leaves the request in `call` and gives nothing: what a compiled coroutine has awaited is held until it waits
    again, and a request that somebody holds is not freed in steps."""
    call.request = yield from steps


async def _handled(call: Call) -> Outcome:
    outcome = call.api.handle(call.context, call.request)
    return await run_yielding(outcome) if isinstance(outcome, Generator) else outcome


async def _encoded_later(call: Call, handling: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The encoded outcome of `handling`; or an awaitable one, without delaying the next request."""
    failed: Exception | None = None
    try:
        outcome = await handling
        if isinstance(outcome, Awaitable) and not call.api.pipelined:
            outcome = await outcome
    except Exception as error:
        failed = error
    if failed is not None:
        # Not within `except`: compiled code holds the traceback until its end, and the frames there hold the request.
        refused = _refusal(call, failed)
        failed = None
        outcome = await run_yielding(refused) if isinstance(refused, Generator) else refused
        del refused
    if not isinstance(outcome, Mapping):
        return outcome
    held = [outcome]
    del outcome
    try:
        return await run_yielding(_encoding(call.context, held))
    except Exception as error:
        return failure(call, error)


async def _encoded_if_long(call: Call, handling: Coroutine[Any, Any, Response]) -> Response:
    """The response of `handling`; a small request may have a long answer."""
    outcome = await handling
    if isinstance(outcome, Mapping) and messages.is_long(outcome):
        held = [outcome]
        del outcome
        return await run_yielding(_encoding(call.context, held))
    return outcome


def _encoding(context: RequestContext, held: list[Mapping[str, Any]]) -> Generator[int, None, EncodedResponse]:
    """The answer in `held`, encoded and freed."""
    from ottla.server.connections.incremental_free import free_in_steps

    key, version = context.api_key, context.api_version
    body = yield from messages.encode_response_in_steps(key, version, context.correlation_id, held[0])
    yield from _counting(context, held[0])
    yield from free_in_steps(held)
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
    try:
        response = _refusal(call, error)
    finally:
        del error  # its traceback has this frame
    return at_once(response) if isinstance(response, Generator) else response


def _refusal(call: Call, error: BaseException) -> Response | Handling[Any]:
    """The same, or the steps of it."""
    if isinstance(error, CloseConnection | MalformedRequest):
        try:
            raise error
        finally:
            del error
    if not isinstance(error, KafkaError):
        context = call.context
        which = fields(
            request=ApiKey(context.api_key).name,
            version=context.api_version,
            client=context.client_host,
            client_id=context.client_id,
        )
        _REQUESTS.error("a request failed", exc_info=error, extra=which)
        error = KafkaError(ErrorCode.unknown_server_error)
    from ottla.server.connections.incremental_free import without_frames

    without_frames(error)
    response = call.api.on_error(call.context, call.request, error)
    if isinstance(response, EncodedResponse):  # what is in others is seen when they are encoded
        call.context.count_error(error.code)
    return response


def encode(call: Call, response: Response) -> tuple[list[Buffer | Slice], int]:
    """The parts of a whole response frame and their size in bytes."""
    context = call.context
    if isinstance(response, bytes):
        return [response], len(response)
    if isinstance(response, EncodedResponse):
        return [_INT32.pack(response.length), *response.parts], response.length + 4
    assert response is not None
    try:
        body = messages.encode_response(context.api_key, context.api_version, context.correlation_id, response)
    except Exception as error:
        instead = failure(call, error)
        assert instead is not None and not isinstance(instead, EncodedResponse | bytes)
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
        elif type(value) in _ARRAYS:
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
        elif type(value) in _ARRAYS:
            for part in value:
                if not isinstance(part, Mapping):
                    break
                yield 1
                yield from _counting(context, part)
