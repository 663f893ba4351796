"""Produce, versions 0-2: message sets of format 0 and 1, which become one batch each before they are appended (KIP-32).

What can be converted at once is; more, and anything that could decompress to much, is converted in a thread, one at a
time, as all long work on records is. Then the request is handled as one of version 3. A partition whose messages are
refused is handled without records, so that permissions and unknown partitions come first; its error takes the place of
the one that it gets. Version 1 tells of throttling (and so do all later ones), 2 of the time under LogAppendTime.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import partial
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer, Millis
from ottla.protocol import produce
from ottla.protocol.messages import ApiKey, MalformedRequest, response_header
from ottla.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, TooLong
from ottla.protocol.records.old_formats import is_new, up_convert
from ottla.protocol.wire import ELEMENTS_MAX, INT32, guarded_steps, read_count, read_name, read_records, write_string
from ottla.replication.partition import ACKS_NONE
from ottla.server.api import (
    LONG_RECORDS_BYTES,
    CloseConnection,
    Deferred,
    EncodedResponse,
    Handling,
    RequestContext,
    Response,
    load,
)
from ottla.server.legacy.translation import Legacy, later

HANDLED_AS: Final = 3
INLINE_BYTES_MAX: Final = 8192
"""Bytes of messages, decompressed, that are converted on the event loop: some hundreds, which take a millisecond."""
MESSAGE_COST_SHIFT: Final = 3
"""Eight bytes of messages cost a microsecond: most are some thirty, and take four."""

_ACKS_TIMEOUT = struct.Struct(">hi")
_PARTITION = struct.Struct(">ihq")
_PARTITION_TIME = struct.Struct(">ihqq")

Refused = dict[tuple[str | None, int], KafkaError]
"""Errors of messages, by topic and partition."""


@guarded_steps
def decode(version: int, frame: Buffer, position: int) -> Generator[int, None, ProduceRequest]:
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    count, position = read_count(frame, position + _ACKS_TIMEOUT.size, False, 6)
    topics = []
    budget = ELEMENTS_MAX
    for _ in range(count):
        name, position = read_name(frame, position, False)
        partition_count, position = read_count(frame, position, False, 8)
        budget -= partition_count
        if budget < 0:
            raise MalformedRequest("too many partitions")
        partitions = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(frame, position)
            records, position = read_records(frame, position + 4, False)
            partitions.append(ProducePartition(index, records))
            if len(partitions) % produce.ROWS_PER_STEP == 0:
                yield 2 * produce.ROWS_PER_STEP
        topics.append(ProduceTopic(name, None, partitions))
        if len(topics) % produce.ROWS_PER_STEP == 0:
            yield 2 * produce.ROWS_PER_STEP
    return ProduceRequest(None, acks, timeout_ms, topics)


def handle(context: RequestContext, request: ProduceRequest) -> Handling[Any]:
    refused: Refused = {}
    empty: dict[tuple[str | None, int], None] = {}
    _keep(context, request)
    for topic in request.topics:
        for data in topic.partitions:
            records = data.records
            if records is None or is_new(records):
                continue
            try:
                data.records = yield from _converted(context, records)
                if data.records is None:
                    empty[topic.name, data.index] = None
            except KafkaError as error:
                refused[topic.name, data.index] = error
                data.records = None
    own, context.api_version = context.api_version, HANDLED_AS
    context.in_steps = True  # nothing lies in the receive buffer any more
    if request.acks == ACKS_NONE:  # nobody hears that there was nothing
        for topic in request.topics:
            topic.partitions = [data for data in topic.partitions if (topic.name, data.index) not in empty]
    answered = partial(_answered, context, refused, empty)
    outcome: Any
    try:
        outcome = load(ApiKey.PRODUCE).handle(context, request)
        if isinstance(outcome, Generator):
            outcome = yield from outcome
    except Exception:
        context.api_version = own
        raise
    if isinstance(outcome, Deferred):
        return later(outcome, answered, context, own)
    context.api_version = own
    return answered(outcome)


def _keep(context: RequestContext, request: ProduceRequest) -> None:
    """Others may be served before this request is done: its messages leave the buffer that they were received in."""
    if context.in_steps or (context.session is not None and context.session.give_received()):
        return
    for topic in request.topics:
        for data in topic.partitions:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _converted(context: RequestContext, records: Buffer) -> Handling[bytearray | None]:
    """Raises KafkaError."""
    if len(records) <= INLINE_BYTES_MAX:
        try:
            batch = up_convert(records, INLINE_BYTES_MAX)
        except TooLong:
            pass
        else:
            yield len(records) >> MESSAGE_COST_SHIFT
            return batch
    found: bytearray | None = yield context.node.long_work(lambda: up_convert(records, DECOMPRESSED_BYTES_MAX))
    return found


def _answered(
    context: RequestContext, refused: Refused, empty: dict[tuple[str | None, int], None], response: Response
) -> Response:
    """The answer of version 3 in the client's own, with the errors of its messages."""
    if response is None:
        return None
    assert isinstance(response, EncodedResponse)
    frame = b"".join(bytes(part) for part in response.parts)
    _, produced = produce.decode_response(HANDLED_AS, memoryview(frame))
    for topic in produced.topics:
        for row in topic.partitions:
            _correct(context, row, refused.get((topic.name, row.index)), (topic.name, row.index) in empty)
    data = encode_response(context.api_version, context.correlation_id, produced)
    return EncodedResponse((data,), len(data))


def _correct(context: RequestContext, row: ProducedPartition, error: KafkaError | None, is_empty: bool) -> None:
    if row.error_code == ErrorCode.invalid_record:
        if error is not None:
            row.error_code = error.code
        elif is_empty:
            row.error_code = ErrorCode.none
    elif row.error_code == ErrorCode.kafka_storage_error:  # of which these versions do not know
        row.error_code = ErrorCode.not_leader_or_follower


def encode_response(version: int, correlation_id: int, response: ProduceResponse) -> bytearray:
    """A response frame without its length prefix."""
    out = bytearray(response_header(ApiKey.PRODUCE, version, correlation_id))
    out += INT32.pack(len(response.topics))
    for topic in response.topics:
        write_string(out, topic.name, False)
        out += INT32.pack(len(topic.partitions))
        for row in topic.partitions:
            if version >= 2:
                out += _PARTITION_TIME.pack(row.index, row.error_code, row.base_offset, row.log_append_time_ms)
            else:
                out += _PARTITION.pack(row.index, row.error_code, row.base_offset)
    if version >= 1:
        out += INT32.pack(response.throttle_time_ms)
    return out


def with_throttle_time(version: int, response: EncodedResponse | bytes, delay_ms: Millis) -> Response:
    """The response with the time for which its client is held back, which is what it ends with; version 0 has none."""
    if version < 1:
        return response
    frame = b"".join(map(bytes, response.parts)) if isinstance(response, EncodedResponse) else response[INT32.size :]
    return EncodedResponse([frame[: -INT32.size] + INT32.pack(delay_ms)])


def on_error(context: RequestContext, request: ProduceRequest, error: KafkaError) -> Response:
    """The same error for every partition."""
    if request.acks == ACKS_NONE:
        raise CloseConnection
    rows = [
        produce.ProducedTopic(
            topic.name, None, [ProducedPartition(data.index, error.code) for data in topic.partitions]
        )
        for topic in request.topics
    ]
    data = encode_response(context.api_version, context.correlation_id, ProduceResponse(rows))
    return EncodedResponse((data,), len(data))


LEGACY: Final = Legacy(decode, handle, on_error, LONG_RECORDS_BYTES)
