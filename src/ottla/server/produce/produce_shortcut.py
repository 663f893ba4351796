"""Produce requests for a single partition, as most clients send them all: answered without being decoded.

What the requests of one producer have in common is learned from the first of them, which the handler has answered
(`handlers/records/produce.py`). It also gets every request that a shortcut gives back.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD, NOT_TRANSACTIONAL
from ottla.protocol.messages import FLEXIBLE_SINCE, ApiKey, encode_response, is_flexible
from ottla.protocol.records.record_batch import HEADER_SIZE, LongWork
from ottla.protocol.varint import uvarint_size
from ottla.replication.partition import ACKS_NONE, Partition
from ottla.replication.replica_log import Appended
from ottla.server.api import Call, Deferred, EncodedResponse, RequestContext, Response, load
from ottla.server.produce.produce_answers import answer_of, check_topic, failure_of, find_partition
from ottla.server.produce.waiting_appends import WaitingAppends, must_wait

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ProduceRequest
    from ottla.protocol.schemas.sent import TopicProduceResponse

ENVELOPES_MAX = 1000
"""Partitions of one producer connection that are remembered; above, all are dropped and learned again."""

ENVELOPE_LENGTHS_MAX = 4
"""Every length is one more look-up; topics of more different name lengths take the ordinary way."""

_FLEXIBLE_SINCE = FLEXIBLE_SINCE[ApiKey.PRODUCE]  # a C global when compiled

_MARK = 0x01FE02FD03FC04FB
"""Stands for the base offset in a response made once as a pattern."""


class Envelope:
    """The common part of a producer's requests for one partition, and the pattern of their answers."""

    __slots__ = ("acks", "guard", "layout", "partition", "prefix", "size", "suffix", "timeout_ms", "topic", "topic_id")

    def __init__(self, context: RequestContext, request: ProduceRequest, partition: Partition) -> None:
        topic = request.topic_data[0]
        self.partition = partition
        self.acks = request.acks
        self.guard = NOT_TRANSACTIONAL if request.transactional_id is None else NO_GUARD
        self.timeout_ms = request.timeout
        self.topic = topic.name
        self.topic_id = topic.topic_id
        row = {
            "index": topic.partition_data[0].index,
            "base_offset": _MARK,
            "log_append_time": _MARK,
            "log_start_offset": _MARK,
        }
        answer = {"name": topic.name, "topic_id": topic.topic_id, "partition_responses": [row]}
        pattern = encode_response(ApiKey.PRODUCE, context.api_version, 0, {"responses": [answer]})
        mark = _MARK.to_bytes(8, "big")
        self.prefix = pattern[4 : pattern.index(mark)]
        self.suffix = pattern[pattern.rindex(mark) + 8 :]
        numbers = "qqq" if context.api_version >= 5 else "qq"
        layout = struct.Struct(f">ii{len(self.prefix)}s{numbers}{len(self.suffix)}s")
        self.layout = layout.pack
        """Length, correlation id, prefix, the numbers of an append, suffix."""
        self.size = layout.size - 4


class ProduceShortcut:
    """Produce requests of one connection and version for a single partition, as librdkafka sends them all.

    Such requests of a producer are equal but for correlation id and records: what was decoded and looked up once, the
    `Envelope`, is found again by those equal bytes.
    """

    __slots__ = ("_clock", "_context", "_envelopes", "_lengths", "_version", "_waiting")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._clock = context.node.clock
        self._version = context.api_version
        self._envelopes: dict[bytes, Envelope] = {}
        self._lengths: list[int] = []
        """Where the records' length stands in the frames of the known envelopes."""
        self._waiting: WaitingAppends | None = None

    def add(self, envelope: Envelope, frame: memoryview, length_at: int) -> None:
        if len(self._envelopes) >= ENVELOPES_MAX:
            self._envelopes.clear()
            self._lengths.clear()
        if length_at not in self._lengths:
            if len(self._lengths) >= ENVELOPE_LENGTHS_MAX:
                return
            self._lengths.append(length_at)
        self._envelopes[bytes(frame[8:length_at])] = envelope

    def __call__(self, frame: memoryview, correlation_id: int) -> bytes | tuple[Call, Deferred | Response] | None:
        return self.answer(frame, correlation_id)

    def answer(self, frame: memoryview, correlation_id: int) -> bytes | tuple[Call, Deferred | Response] | None:
        if cython.compiled:
            assert type(frame) is memoryview
            data = cython.cast("const char *", PyMemoryView_GET_BUFFER(frame).buf)  # type: ignore[name-defined] # noqa: F821
        else:
            data = frame
        size = len(frame)
        for length_at in self._lengths:
            if length_at < size:
                envelope = self._envelopes.get(data[8:length_at] if cython.compiled else bytes(data[8:length_at]))
                if envelope is not None:
                    break
        else:
            return None
        version = self._version
        start, stop = sole_records(frame, length_at, version >= _FLEXIBLE_SINCE)
        if stop < start + HEADER_SIZE:
            return None
        records = frame[start:stop]
        header = data[start : start + HEADER_SIZE] if cython.compiled else bytes(records[:HEADER_SIZE])
        partition = envelope.partition
        try:
            info = partition.append_as_leader(
                records, envelope.acks, now_ms=self._clock.now_ms(), request_version=version, guard=envelope.guard
            )
        except LongWork:
            return None
        except KafkaError:
            # Nothing was written: the handler meets the same error, and can answer it. But offsets may have been
            # assigned before producer state refused the batch, and a batch with offsets is another error.
            records[:HEADER_SIZE] = header
            return None
        if envelope.acks == ACKS_NONE:
            return b""
        if version >= 5:
            answer = envelope.layout(
                envelope.size,
                correlation_id,
                envelope.prefix,
                info.first_offset,
                info.log_append_time_ms,
                info.log_start_offset,
                envelope.suffix,
            )
        else:
            answer = envelope.layout(
                envelope.size,
                correlation_id,
                envelope.prefix,
                info.first_offset,
                info.log_append_time_ms,
                envelope.suffix,
            )
        if (info.needs_flush or not partition.sole_in_sync) and must_wait(partition, info, envelope.acks):
            return self._wait(envelope, info, correlation_id, answer)
        return answer

    def _wait(
        self, envelope: Envelope, info: Appended, correlation_id: int, answer: bytes
    ) -> tuple[Call, Deferred | Response]:
        """The append is not yet as safe as it has to be; `answer` is what to say when it is."""
        model = self._context
        if self._waiting is None:
            self._waiting = WaitingAppends(Call(load(ApiKey.PRODUCE), model, None))

        def fail(error: ErrorCode) -> Response:
            """Encoded here: the call that all appends share has the correlation id of another request."""
            context = RequestContext(
                model.node,
                model.api_key,
                model.api_version,
                correlation_id,
                model.client_id,
                model.client_host,
                model.listener_name,
                model.principal,
                model.session,
            )
            envelope.partition.traffic.failed_produces += 1
            context.count_error(error)
            failed = failure_of(envelope.partition.topic_partition.partition, KafkaError(error))
            topic: TopicProduceResponse = {
                "name": envelope.topic,
                "topic_id": envelope.topic_id,
                "partition_responses": [failed],
            }
            answer = answer_of(context, [topic])
            body = encode_response(ApiKey.PRODUCE, model.api_version, correlation_id, answer)
            return EncodedResponse([body], len(body))

        return self._waiting.add(envelope.partition, info, envelope.acks, envelope.timeout_ms, answer, fail)


def sole_records(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """Where the records lie whose length stands at `position`, if nothing but empty tagged fields follows them.

    (0, 0) where they do not, are null, or their length takes more bytes than it has to.
    """
    if cython.compiled:
        assert type(frame) is memoryview
        data = cython.cast("const unsigned char *", PyMemoryView_GET_BUFFER(frame).buf)  # type: ignore[name-defined] # noqa: F821
    else:
        data = frame
    size = len(frame)
    if flexible:
        length = shift = 0
        byte = 0x80
        while byte >= 0x80 and position < size and shift <= 28:
            byte = data[position]
            length |= (byte & 0x7F) << shift
            position += 1
            shift += 7
        stop = position + length - 1
        if byte < 0x80 and length > 0 and stop == size - 3 and not data[stop] | data[stop + 1] | data[stop + 2]:
            return position, stop
    elif position + 4 <= size:
        length = data[position] << 24 | data[position + 1] << 16 | data[position + 2] << 8 | data[position + 3]
        if position + 4 + length == size:
            return position + 4, size
    return 0, 0


def learn(context: RequestContext, request: ProduceRequest, frame: memoryview) -> None:
    """Note the envelope of a request for one partition, if it is one that can come again."""
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1 or context.session is None:
        return
    topic, data = request.topic_data[0], request.topic_data[0].partition_data[0]
    try:
        partition = find_partition(context, topic, data.index)
        check_topic(context, partition)
    except KafkaError:
        return
    if data.records is None or not -1 <= request.acks <= 1:
        return
    if context.node.authorizer is not None:
        from ottla.server.produce import produce_permissions

        if not produce_permissions.may_repeat(context, request):
            return
    flexible = is_flexible(ApiKey.PRODUCE, context.api_version)
    length_size = uvarint_size(len(data.records) + 1) if flexible else 4
    length_at = len(frame) - (3 if flexible else 0) - len(data.records) - length_size
    if sole_records(frame, length_at, flexible) == (0, 0):
        return
    shortcuts = context.session.shortcuts
    head = context.api_key << 16 | context.api_version
    if head not in shortcuts:
        shortcuts[head] = ProduceShortcut(context)
    shortcuts[head].add(Envelope(context, request, partition), frame, length_at)
