"""Fetch, versions 4-18: read partitions from given offsets, waiting until there is enough (long poll).

Sessions (KIP-227), topic ids (KIP-516), leader epochs and divergence (KIP-320, 595), hints at leaders (KIP-951). A
replica's fetch (with its node id) reads up to the log end, and says how far its log is; consumers read what is
committed, from version 11 on of any replica (KIP-392). `server/fetch/fetching.py` does the work.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer
from ottla.protocol import fetch, fetch_responses, messages
from ottla.protocol.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from ottla.protocol.fetch_plain import decode_plain
from ottla.protocol.messages import ApiKey
from ottla.server.api import (
    RECORDS_COST_SHIFT,
    Call,
    Deferred,
    Handling,
    LongRequest,
    RequestContext,
    Response,
    api,
    load,
)
from ottla.server.connections.outbox import EncodedResponse
from ottla.server.fetch.fetch_entries import (
    NEEDS,
)
from ottla.server.fetch.fetching import Fetch
from ottla.server.fetch.partition_read import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from ottla.steps import at_once

HEAD_BYTES = 8
"""Bytes of a frame before the client id: API, version and correlation id."""


def refuse(context: RequestContext, request: FetchRequest, error: KafkaError) -> Response:
    """One error for the whole request; versions before 7 have no room for it but at every partition."""
    response = FetchResponse([], error_code=error.code)
    if context.api_version < 7:  # KIP-227 brought the error of a whole response
        response.topics = [
            FetchedTopic(
                topic.name, topic.topic_id, [FetchedPartition(p.partition, error.code) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    return _encode(context, response)


class FetchShortcut:
    """Plain fetches of one connection and version: all that a client asks for, but the first request and long ones.

    Their header is that of the first but for the correlation id, so that nothing is left to do for the dispatcher.
    """

    __slots__ = ("_call", "_context", "_head")

    def __init__(self, context: RequestContext, head: bytes) -> None:
        self._context = context
        """Serves one request after the other: the next of a connection is not begun before the last is answered."""
        self._call = Call(load(ApiKey.FETCH), context, None)
        self._head = head
        """What lies in the frame between correlation id and body."""

    def __call__(self, frame: memoryview, correlation_id: int) -> EncodedResponse | tuple[Call, Deferred] | None:
        return self.answer(frame, correlation_id)

    def answer(self, frame: memoryview, correlation_id: int) -> EncodedResponse | tuple[Call, Deferred] | None:
        head, context = self._head, self._context
        start = HEAD_BYTES + len(head)
        if len(frame) < start:
            return None
        if cython.compiled:
            assert type(frame) is memoryview
            data = cython.cast("const char *", PyMemoryView_GET_BUFFER(frame).buf)  # type: ignore[name-defined] # noqa: F821
        else:
            data = frame
        if data[HEAD_BYTES:start] != head:  # another client id, or tagged fields of the header (KIP-482)
            return None
        request = decode_plain(context.api_version, frame, start)
        if request is None or not READ_UNCOMMITTED <= request.isolation_level <= READ_COMMITTED:
            return None
        assert context.session is not None
        context.correlation_id = correlation_id
        context.principal = context.session.principal
        one = Fetch(context, request)
        if one.is_long():
            return None
        try:
            outcome = one.begin()
        except KafkaError:  # of a session, which is as it was (KIP-227); the handler meets and reports it again
            return None
        if isinstance(outcome, EncodedResponse):
            return outcome
        assert isinstance(outcome, Deferred)
        self._call.request = request
        return self._call, outcome


def learn(context: RequestContext, request: FetchRequest, frame: memoryview) -> None:
    """Let the connection's next fetches take the short way."""
    session = context.session
    which = context.api_key << 16 | context.api_version
    if session is None or which in session.shortcuts:
        return
    length = max(int.from_bytes(frame[HEAD_BYTES : HEAD_BYTES + 2], "big", signed=True), 0)
    is_flexible = context.api_version >= fetch.FLEXIBLE_SINCE
    head = bytes(frame[HEAD_BYTES : HEAD_BYTES + 2 + length + is_flexible])
    if not is_flexible or not head[-1]:  # no tagged fields in the header (KIP-482)
        session.shortcuts[which] = FetchShortcut(context, head)


def decode(version: int, frame: Buffer, position: int) -> FetchRequest:
    request = decode_plain(version, frame, position)
    if request is not None:
        return request
    message = messages.decode_short_request(ApiKey.FETCH, version, frame, position, 2 * fetch.ROWS_PER_STEP)
    if message is None:
        raise LongRequest
    return at_once(fetch.request_of(version, message))


@api(
    ApiKey.FETCH,
    versions=(4, 18),
    needs=NEEDS,
    decode=decode,
    decode_in_steps=fetch.decode_in_steps,
    on_error=refuse,
    cost_shift=RECORDS_COST_SHIFT,
    learn=learn,
)
def handle(context: RequestContext, request: FetchRequest) -> Response | Deferred | Handling[Response | Deferred]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):  # there are no others (KIP-98)
        raise KafkaError(ErrorCode.invalid_request)
    one = Fetch(context, request)
    return one.begin_in_steps() if one.is_long() else one.begin()


def _encode(context: RequestContext, response: FetchResponse) -> EncodedResponse:
    parts, size = fetch_responses.encode_response(context.api_version, context.correlation_id, response)
    return EncodedResponse(parts, size)
