"""Produce, versions 0-13: append producers' batches. The hot path: no copy, no task, no work per record here.

Versions 0-2 are advertised and refused by closing, as Kafka does for librdkafka's sake (KAFKA-18659). acks=0 has no
answer, and a failure closes the connection, so that the producer looks at the metadata again. Where a topic asks for
fsyncs (`flush.messages`), the answer waits for one that serves every append of that moment, while the connection's next
produce requests begin already.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine, Generator
from typing import Any

from ottla.drivers.cooperative import Cost
from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS
from ottla.protocol import produce
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.protocol.produce import ProducedPartition, ProducedTopic, ProduceRequest, ProduceResponse
from ottla.protocol.record_batch import HEADER_SIZE, LongWork
from ottla.protocol.varint import read_uvarint, uvarint_size
from ottla.protocol.wire import INT32, LeaderIdAndEpoch, NodeEndpoint
from ottla.replication.partition import ACKS_NONE, Partition
from ottla.server.api import (
    RECORDS_COST_SHIFT,
    Call,
    CloseConnection,
    EncodedResponse,
    Handling,
    RequestContext,
    Response,
    api,
    load,
)
from ottla.storage.validation import InvalidRecords, NotOneBatch

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write to internal topics (Kafka's AdminUtils)."""

WITHOUT_LOG_START = frozenset({
    ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.not_leader_or_follower,
    ErrorCode.message_too_large, ErrorCode.record_list_too_large, ErrorCode.corrupt_message,
    ErrorCode.kafka_storage_error, ErrorCode.invalid_topic_exception, ErrorCode.invalid_txn_state,
    ErrorCode.transactional_id_authorization_failed, ErrorCode.invalid_required_acks,
})  # fmt: skip
"""Refusals without the log start, as ReplicaManager.appendRecordsToLeader sorts them."""

APPEND_COST = 30
"""To append a small batch."""

ENVELOPES_MAX = 1000
"""Partitions of one producer connection that are remembered; above, all are dropped and learned again."""

ENVELOPE_LENGTHS_MAX = 4
"""Every length is one more look-up; topics of more different name lengths take the ordinary way."""

TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})

LEADER_ERRORS = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
"""Errors that come with a hint at the leader (KIP-951)."""


_LENGTH_AND_ID = struct.Struct(">ii")
_TWO_INT64 = struct.Struct(">qq")
_THREE_INT64 = struct.Struct(">qqq")
_MARK = 0x01FE02FD03FC04FB
"""Stands for the base offset in a response made once as a pattern."""


class Envelope:
    """What one producer's requests for one partition have in common, and the pattern of their answers."""

    __slots__ = ("acks", "partition", "prefix", "suffix", "topic", "topic_id")

    def __init__(self, context: RequestContext, request: ProduceRequest, partition: Partition) -> None:
        topic = request.topics[0]
        self.partition = partition
        self.acks = request.acks
        self.topic = topic.name
        self.topic_id = topic.topic_id
        answer = ProducedPartition(topic.partitions[0].index, 0, _MARK, _MARK, _MARK)
        pattern = produce.encode_response(
            context.api_version, 0, ProduceResponse([ProducedTopic(topic.name, topic.topic_id, [answer])])
        )
        mark = _MARK.to_bytes(8, "big")
        self.prefix = bytes(pattern[4 : pattern.index(mark)])
        self.suffix = bytes(pattern[pattern.rindex(mark) + 8 :])


class ProduceShortcut:
    """Produce requests of one connection and version for a single partition, as librdkafka sends them all.

    Such requests of a producer are equal but for correlation id and records: what was decoded and looked up once, the
    `Envelope`, is found again by those equal bytes.
    """

    __slots__ = ("_context", "_envelopes", "_lengths")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._envelopes: dict[bytes, Envelope] = {}
        self._lengths: list[int] = []
        """Where the records' length stands in the frames of the known envelopes."""

    def add(self, envelope: Envelope, frame: memoryview, length_at: int) -> None:
        if len(self._envelopes) >= ENVELOPES_MAX:
            self._envelopes.clear()
            self._lengths.clear()
        if length_at not in self._lengths:
            if len(self._lengths) >= ENVELOPE_LENGTHS_MAX:
                return
            self._lengths.append(length_at)
        self._envelopes[bytes(frame[8:length_at])] = envelope

    def __call__(
        self, frame: memoryview, correlation_id: int
    ) -> bytes | tuple[Call, Coroutine[Any, Any, Response]] | None:
        for length_at in self._lengths:
            envelope = self._envelopes.get(bytes(frame[8:length_at]))
            if envelope is not None:
                break
        else:
            return None
        version = self._context.api_version
        records = _sole_records(frame, length_at, version)
        partition = envelope.partition
        if records is None or not partition.is_leader:
            return None
        header = bytes(records[:HEADER_SIZE])
        try:
            info = partition.append_as_leader(
                records, envelope.acks, now_ms=self._context.node.clock.now_ms(), request_version=version
            )
        except LongWork:
            return None
        except KafkaError:
            # Nothing was written: the handler meets the same error, and can answer it. But offsets may have been
            # assigned before producer state refused the batch, and a batch with offsets is another error.
            records[:HEADER_SIZE] = header
            return None
        if info.needs_flush:
            return self._wait(envelope, partition, info, correlation_id)
        if envelope.acks == ACKS_NONE:
            return b""
        if version >= 5:
            middle = _THREE_INT64.pack(info.first_offset, info.log_append_time_ms, info.log_start_offset)
        else:
            middle = _TWO_INT64.pack(info.first_offset, info.log_append_time_ms)
        prefix, suffix = envelope.prefix, envelope.suffix
        size = len(prefix) + len(suffix) + len(middle) + 4
        return _LENGTH_AND_ID.pack(size, correlation_id) + prefix + middle + suffix

    def _wait(
        self, envelope: Envelope, partition: Partition, info: Any, correlation_id: int
    ) -> bytes | tuple[Call, Coroutine[Any, Any, Response]]:
        """The topic asks for an fsync before the answer."""
        model = self._context
        context = RequestContext(
            model.node, model.api_key, model.api_version, correlation_id, model.client_id, model.client_host,
            model.listener_name, model.principal, model.session,
        )  # fmt: skip
        answer = _appended(partition.topic_partition.partition, info)
        unflushed = [UnflushedAppend(answer, partition, info.last_offset + 1)]
        if envelope.acks == ACKS_NONE:
            context.node.spawn(_fsync_all(unflushed))
            return b""
        topics = [ProducedTopic(envelope.topic, envelope.topic_id, [answer])]
        return Call(load(ApiKey.PRODUCE), context, None), _answer_fsynced(context, topics, unflushed)


def _sole_records(frame: memoryview, position: int, version: int) -> memoryview | None:
    """The records whose length stands at `position`, if nothing but empty tagged fields follows them."""
    try:
        if version < produce.FLEXIBLE_SINCE:
            (length,) = INT32.unpack_from(frame, position)
            return frame[position + 4 :] if length == len(frame) - position - 4 else None
        length, position = read_uvarint(frame, position)
    except (struct.error, IndexError):
        return None
    end = position + length - 1
    return frame[position:end] if end == len(frame) - 3 and bytes(frame[end:]) == b"\0\0\0" else None


def learn(context: RequestContext, request: ProduceRequest, frame: memoryview) -> None:
    """Note the envelope of a request for one partition, if it is one that can come again."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or context.session is None:
        return
    topic, data = request.topics[0], request.topics[0].partitions[0]
    replicas = context.node.replicas
    try:
        if topic.topic_id is None:
            partition = replicas.find(topic.name or "", data.index)
        else:
            partition = replicas.find_by_id(topic.topic_id, data.index)
        _check(context, request, partition)
    except KafkaError:
        return
    if data.records is None or not -1 <= request.acks <= 1:
        return
    flexible = context.api_version >= produce.FLEXIBLE_SINCE
    length_size = uvarint_size(len(data.records) + 1) if flexible else 4
    length_at = len(frame) - (3 if flexible else 0) - len(data.records) - length_size
    if _sole_records(frame, length_at, context.api_version) is None:
        return
    shortcuts = context.session.shortcuts
    head = context.api_key << 16 | context.api_version
    if head not in shortcuts:
        shortcuts[head] = ProduceShortcut(context)
    shortcuts[head].add(Envelope(context, request, partition), frame, length_at)


class UnflushedAppend:
    """An append whose answer waits for an fsync."""

    __slots__ = ("answer", "end_offset", "partition")

    def __init__(self, answer: ProducedPartition, partition: Partition, end_offset: int) -> None:
        self.answer = answer
        self.partition = partition
        self.end_offset = end_offset


def decode(version: int, frame: Any, position: int) -> Generator[int, None, ProduceRequest]:
    if version < produce.VERSION_MIN:
        raise MalformedRequest(f"Produce version {version}")
    return produce.decode_in_steps(version, frame, position)


def refuse_all(context: RequestContext, request: ProduceRequest, error: KafkaError) -> Response:
    """The same error for every partition."""
    return _encode(
        context,
        [ProducedTopic(t.name, t.topic_id, [_failed(p.index, error) for p in t.partitions]) for t in request.topics],
    )


@api(
    ApiKey.PRODUCE,
    versions=(0, 13),
    decode=decode,
    on_error=refuse_all,
    pipelined=True,
    learn=learn,
    cost_shift=RECORDS_COST_SHIFT,
)
def handle(context: RequestContext, request: ProduceRequest) -> Handling:
    acks = request.acks
    acks_are_known = -1 <= acks <= 1
    replicas = context.node.replicas
    unflushed: list[UnflushedAppend] = []
    failed = False
    topics = []
    for topic in request.topics:
        answers = []
        for data in topic.partitions:
            partition = None
            try:
                if topic.topic_id is None:
                    partition = replicas.find(topic.name or "", data.index)
                else:
                    partition = replicas.find_by_id(topic.topic_id, data.index)
                _check(context, request, partition)
                if data.records is None:
                    raise KafkaError(ErrorCode.invalid_record)
                if not acks_are_known:
                    raise KafkaError(ErrorCode.invalid_required_acks)
                info = yield from _append(context, request, partition, data.records)
            except KafkaError as error:
                failed = True
                answers.append(_failed(data.index, error, partition))
                _count_failure(context, error, partition, data.records)
                if context.in_steps:
                    yield APPEND_COST
                continue
            answer = _appended(data.index, info)
            answers.append(answer)
            if info.needs_flush:
                unflushed.append(UnflushedAppend(answer, partition, info.last_offset + 1))
            if context.in_steps:  # otherwise the records still lie in the receive buffer
                yield APPEND_COST + (len(data.records) >> RECORDS_COST_SHIFT)
        if answers:
            topics.append(ProducedTopic(topic.name, topic.topic_id, answers))
    if unflushed:
        if acks == ACKS_NONE:
            context.node.spawn(_fsync_all(unflushed))
        else:
            return _answer_fsynced(context, topics, unflushed)
    if acks == ACKS_NONE:
        if failed:
            raise CloseConnection
        return None
    return _encode(context, topics)


def _append(
    context: RequestContext, request: ProduceRequest, partition: Partition, records: Any
) -> Generator[Cost, Any, Any]:
    """Append a batch, after a thread has gone through its records where they are very many. Raises KafkaError."""
    version = context.api_version
    try:
        return partition.append_as_leader(
            records, request.acks, now_ms=context.node.clock.now_ms(), request_version=version
        )
    except LongWork as long:
        examine = long.do
    if not context.in_steps:
        _keep_records(context, request)
        context.in_steps = True
    examined = yield context.node.long_work(examine)
    return partition.append_as_leader(
        examined, request.acks, now_ms=context.node.clock.now_ms(), request_version=version
    )


def _keep_records(context: RequestContext, request: ProduceRequest) -> None:
    """Others are served before this request is done: its records move out of the buffer that they were received in."""
    if context.session is not None and context.session.give_received():
        return
    for topic in request.topics:
        for data in topic.partitions:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _check(context: RequestContext, request: ProduceRequest, partition: Partition) -> None:
    """What a client may not write here at all. Raises KafkaError."""
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.invalid_txn_state)
    if partition.topic_partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.invalid_topic_exception)


def _appended(index: int, info: Any) -> ProducedPartition:
    return ProducedPartition(index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset)


def _count_failure(context: RequestContext, error: KafkaError, partition: Partition | None, records: Any) -> None:
    context.count_error(error.code)
    if partition is not None:
        partition.traffic.produces += 1
        partition.traffic.failed_produces += 1
        if error.code in TOO_LARGE:
            partition.traffic.bytes_rejected += len(records)
        elif error.code is ErrorCode.kafka_storage_error:
            context.node.replicas.warn_of_refusal(partition, error, context.node.clock.now_ms())


def _failed(index: int, error: KafkaError, partition: Partition | None = None) -> ProducedPartition:
    answer = ProducedPartition(index, error.code)
    if partition is not None and error.code not in WITHOUT_LOG_START and not isinstance(error, NotOneBatch):
        answer.log_start_offset = partition.log.log_start_offset
    if isinstance(error, InvalidRecords):
        answer.record_errors = error.record_errors
        answer.error_message = error.message
    return answer


async def _answer_fsynced(
    context: RequestContext, topics: list[ProducedTopic], unflushed: list[UnflushedAppend]
) -> Response:
    await _fsync_all(unflushed)
    return _encode(context, topics)


async def _fsync_all(unflushed: list[UnflushedAppend]) -> None:
    if len(unflushed) == 1:
        await _fsync(unflushed[0])
    else:
        await asyncio.gather(*map(_fsync, unflushed))


async def _fsync(append: UnflushedAppend) -> None:
    """Once fsynced the append is committed; until then nobody reads it."""
    try:
        await append.partition.log.flush_async(append.end_offset)
    except KafkaError as error:
        append.answer.error_code = error.code
        append.answer.base_offset = append.answer.log_append_time_ms = append.answer.log_start_offset = -1
    else:
        append.partition.advance_high_watermark(append.end_offset)


def _encode(context: RequestContext, topics: list[ProducedTopic]) -> EncodedResponse:
    response = ProduceResponse(topics)
    if context.api_version >= 10:
        _hint_at_leaders(context, response)
    data = produce.encode_response(context.api_version, context.correlation_id, response)
    return EncodedResponse((data,), len(data))


def _hint_at_leaders(context: RequestContext, response: ProduceResponse) -> None:
    """Name leader and endpoint where a partition answered that this node is not its leader (KIP-951)."""
    node_ids = set()
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code in LEADER_ERRORS:
                image = context.node.image
                found = image.topic(topic.name) if topic.name is not None else image.topic_by_id(topic.topic_id)  # type: ignore[arg-type]
                registration = None if found is None else found.partitions.get(partition.index)
                if registration is not None:
                    partition.current_leader = LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
                    node_ids.add(registration.leader)
    if node_ids:
        response.node_endpoints = endpoints_of(context, node_ids)


def endpoints_of(context: RequestContext, node_ids: set[int]) -> list[NodeEndpoint]:
    """Where the clients of this listener reach those nodes."""
    found = []
    for node_id in sorted(node_ids):
        broker = context.node.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(context.listener_name)
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(node_id, endpoint.host, endpoint.port, broker.rack))
    return found
