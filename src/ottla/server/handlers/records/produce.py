"""Produce, versions 0-13: append producers' batches. The hot path: no copy, no task, no work per record here.

Versions 0-2 are advertised and refused by closing, as Kafka does for librdkafka's sake (KAFKA-18659), unless
`server/legacy` serves them. acks=0 has no answer, and a failure closes the connection, so that the producer looks at
the metadata again. Where an append is not committed at once (other replicas in sync, or `flush.messages` asks for an
fsync), the answer waits for the partition to say so (`WaitingProduce`), while the connection's next produce requests
begin already.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Generator
from uuid import UUID

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS, NO_GUARD, NO_PRODUCER_ID, NOT_TRANSACTIONAL, Buffer
from ottla.protocol import produce
from ottla.protocol.messages import ApiKey, RemovedVersion
from ottla.protocol.produce import ProducedPartition, ProducedTopic, ProduceRequest, ProduceResponse, ProduceTopic
from ottla.protocol.records.record_batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, TRANSACTIONAL, LongWork
from ottla.protocol.varint import uvarint_size
from ottla.replication.partition import ACKS_ALL, ACKS_NONE, Partition
from ottla.replication.purgatory import DelayedProduce
from ottla.replication.replica_log import Appended
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import (
    RECORDS_COST_SHIFT,
    Call,
    CloseConnection,
    Deferred,
    EncodedResponse,
    Handling,
    RequestContext,
    Response,
    api,
    load,
)
from ottla.server.connections.client_facts import wrote
from ottla.server.metadata.leader_hints import LEADER_ERRORS, endpoints_of, known_leader
from ottla.server.produce.waiting_appends import EXPIRY_SECONDS_MIN, WaitingAppends
from ottla.server.security.permissions import Need, of_topics
from ottla.storage.log.validation import InvalidRecords, NotOneBatch
from ottla.storage.producers.producer_entry import NotVerified

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write to internal topics (Kafka's AdminUtils)."""

WITHOUT_LOG_START = frozenset({
    ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.not_leader_or_follower,
    ErrorCode.message_too_large, ErrorCode.record_list_too_large, ErrorCode.corrupt_message,
    ErrorCode.kafka_storage_error, ErrorCode.invalid_topic_exception, ErrorCode.invalid_required_acks,
})  # fmt: skip
"""Refusals without the log start, as ReplicaManager.appendRecordsToLeader sorts them."""

APPEND_COST = 30
"""Cost of appending a small batch."""

ENVELOPES_MAX = 1000
"""Partitions of one producer connection that are remembered; above, all are dropped and learned again."""

ENVELOPE_LENGTHS_MAX = 4
"""Every length is one more look-up; topics of more different name lengths take the ordinary way."""

TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})


_FLEXIBLE_SINCE = produce.FLEXIBLE_SINCE  # a C global when compiled

_FLAGS_POSITION = 22
"""The lower byte of a batch's attributes."""

_PRODUCER_ID_POSITION = 43

_MARK = 0x01FE02FD03FC04FB
"""Stands for the base offset in a response made once as a pattern."""


class Envelope:
    """The common part of a producer's requests for one partition, and the pattern of their answers."""

    __slots__ = ("acks", "guard", "layout", "partition", "prefix", "size", "suffix", "timeout_ms", "topic", "topic_id")

    def __init__(self, context: RequestContext, request: ProduceRequest, partition: Partition) -> None:
        topic = request.topics[0]
        self.partition = partition
        self.acks = request.acks
        self.guard = NOT_TRANSACTIONAL if request.transactional_id is None else NO_GUARD
        self.timeout_ms = request.timeout_ms
        self.topic = topic.name
        self.topic_id = topic.topic_id
        answer = ProducedPartition(topic.partitions[0].index, 0, _MARK, _MARK, _MARK)
        pattern = produce.encode_response(
            context.api_version, 0, ProduceResponse([ProducedTopic(topic.name, topic.topic_id, [answer])])
        )
        mark = _MARK.to_bytes(8, "big")
        self.prefix = bytes(pattern[4 : pattern.index(mark)])
        self.suffix = bytes(pattern[pattern.rindex(mark) + 8 :])
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
                envelope.size, correlation_id, envelope.prefix, info.first_offset, info.log_append_time_ms,
                envelope.suffix,
            )  # fmt: skip
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
            context = RequestContext(
                model.node, model.api_key, model.api_version, correlation_id, model.client_id, model.client_host,
                model.listener_name, model.principal, model.session,
            )  # fmt: skip
            envelope.partition.traffic.failed_produces += 1
            context.count_error(error)
            failed = ProducedPartition(envelope.partition.topic_partition.partition, error)
            return _encode(context, [ProducedTopic(envelope.topic, envelope.topic_id, [failed])])

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
    if context.node.authorizer is not None:
        from ottla.server.produce import produce_permissions

        if not produce_permissions.may_repeat(context, request):
            return
    flexible = context.api_version >= produce.FLEXIBLE_SINCE
    length_size = uvarint_size(len(data.records) + 1) if flexible else 4
    length_at = len(frame) - (3 if flexible else 0) - len(data.records) - length_size
    if sole_records(frame, length_at, flexible) == (0, 0):
        return
    shortcuts = context.session.shortcuts
    head = context.api_key << 16 | context.api_version
    if head not in shortcuts:
        shortcuts[head] = ProduceShortcut(context)
    shortcuts[head].add(Envelope(context, request, partition), frame, length_at)


def must_wait(partition: Partition, info: Appended, acks: int) -> bool:
    """Whether the answer to an append has to wait: for the commit, or without acks=all for the own disk."""
    if acks == ACKS_ALL:
        return info.last_offset >= partition.log.high_watermark
    return acks != ACKS_NONE and info.needs_flush


class WaitingProduce:
    """A produce request some of whose appends are not yet as safe as they have to be."""

    __slots__ = ("_context", "_deferred", "_delayed", "_timeout_s", "_timer", "_topics")

    def __init__(self, context: RequestContext, acks: int, timeout_ms: int) -> None:
        self._context = context
        self._delayed = DelayedProduce(acks, self._ready)
        self._deferred = Deferred(self._cancel)
        self._timeout_s = max(timeout_ms, 0) / 1000
        self._timer: asyncio.Handle | None = None
        self._topics: list[ProducedTopic] = []

    def add(self, partition: Partition, info: Appended, answer: ProducedPartition) -> None:
        def fail(error: ErrorCode) -> None:
            partition.traffic.failed_produces += 1
            answer.error_code = error
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            self._context.count_error(error)

        self._delayed.add(partition, info.last_offset + 1, info.leader_epoch, fail)

    def outcome(self, topics: list[ProducedTopic]) -> Deferred | Response:
        """The answer, or what will be it."""
        self._topics = topics
        if not self._delayed.seal():
            return _encode(self._context, topics)
        if self._delayed.acks == ACKS_ALL:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire)
        return self._deferred

    def _ready(self) -> None:
        # Not at once: whoever moves a high watermark is in the middle of something.
        session = self._context.session
        if session is None:
            asyncio.get_running_loop().call_soon(self._answer)
        else:
            session.answer_together(self._answer)

    def _answer(self) -> None:
        self._stop_timer()
        result: Response | Exception
        try:
            result = _encode(self._context, self._topics)
        except Exception as error:
            result = error
        self._deferred.complete(result)

    def _cancel(self) -> None:
        """The client is gone; what was appended becomes committed all the same."""
        self._stop_timer()
        self._delayed.leave()

    def _expire(self) -> None:
        self._timer = None
        if self._delayed.expire():
            again_s = max(self._timeout_s, EXPIRY_SECONDS_MIN)
            self._timer = asyncio.get_running_loop().call_later(again_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def decode(version: int, frame: Buffer, position: int) -> Generator[int, None, ProduceRequest]:
    if version < produce.VERSION_MIN:
        raise RemovedVersion(f"Produce version {version}")
    return produce.decode_in_steps(version, frame, position)


def refuse_all(context: RequestContext, request: ProduceRequest, error: KafkaError) -> Response:
    """The same error for every partition."""
    if request.acks == ACKS_NONE:
        raise CloseConnection
    for topic in request.topics:
        for data in topic.partitions:
            _note_refusal(context, topic, data, error)
    return _encode(
        context,
        [ProducedTopic(t.name, t.topic_id, [_failed(p.index, error) for p in t.partitions]) for t in request.topics],
    )


NEEDS = (
    Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id", when="with transactional batches"),
    of_topics(Operation.WRITE, "topic_data.name"),
)


@api(
    ApiKey.PRODUCE,
    versions=(0, 13),
    needs=NEEDS,
    decode=decode,
    on_error=refuse_all,
    pipelined=True,
    learn=learn,
    cost_shift=RECORDS_COST_SHIFT,
)
def handle(context: RequestContext, request: ProduceRequest) -> Handling[Response | Deferred]:
    acks = request.acks
    acks_are_known = -1 <= acks <= 1
    replicas = context.node.replicas
    waiting: WaitingProduce | None = None
    failed = False
    guards = denied = None
    if context.node.authorizer is not None:
        from ottla.server.produce import produce_permissions  # most nodes do without

        denied = produce_permissions.denied(context, request, is_transactional=_is_transactional(request))
    if request.transactional_id is not None:
        from ottla.server.produce import transactional_produce  # most nodes never need it

        guards = yield from transactional_produce.verify(context, request, _keep_records, denied or ())
    elif _is_transactional(request):
        raise KafkaError(ErrorCode.transactional_id_authorization_failed)
    topics = []
    for topic in request.topics:
        answers = []
        for data in topic.partitions:
            partition = info = None
            try:
                if denied and (topic.topic_id or topic.name) in denied:
                    raise KafkaError(ErrorCode.topic_authorization_failed)
                if topic.topic_id is None:
                    partition = replicas.find(topic.name or "", data.index)
                else:
                    partition = replicas.find_by_id(topic.topic_id, data.index)
                _check(context, request, partition)
                if data.records is None:
                    raise KafkaError(ErrorCode.invalid_record)
                if not acks_are_known:
                    raise KafkaError(ErrorCode.invalid_required_acks)
                guard = NOT_TRANSACTIONAL if guards is None else _guard_of(guards, partition)
                info = yield from _append(context, request, partition, data.records, guard)
            except KafkaError as refused:
                failed = True
                error = _unless_deposed(partition, refused)
                answers.append(_failed(data.index, error, partition))
                _count_failure(context, error, partition, data.records)
                _note_refusal(context, topic, data, error)
            if info is None or partition is None or data.records is None:
                if context.in_steps:
                    yield APPEND_COST
                continue
            answer = _appended(data.index, info)
            answers.append(answer)
            if (info.needs_flush or not partition.sole_in_sync) and must_wait(partition, info, acks):
                if waiting is None:
                    waiting = WaitingProduce(context, acks, request.timeout_ms)
                waiting.add(partition, info, answer)
            if context.in_steps:  # otherwise the records still lie in the receive buffer
                yield APPEND_COST + (len(data.records) >> RECORDS_COST_SHIFT)
        if answers:
            topics.append(ProducedTopic(topic.name, topic.topic_id, answers))
    if not failed:
        _note_producer(context, request)
    if waiting is not None:
        return waiting.outcome(topics)
    if acks == ACKS_NONE:
        if failed:
            raise CloseConnection
        return None
    return _encode(context, topics)


def _note_producer(context: RequestContext, request: ProduceRequest) -> None:
    """Note the producer of the first batch for ListClients. A client has one producer on a connection, so requests that
    a `ProduceShortcut` answers need not be looked at."""
    if not request.topics or not request.topics[0].partitions:
        return
    records = request.topics[0].partitions[0].records
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
        return
    producer_id = int.from_bytes(records[_PRODUCER_ID_POSITION : _PRODUCER_ID_POSITION + 8], "big", signed=True)
    if producer_id != NO_PRODUCER_ID:
        wrote(context, producer_id)


def _guard_of(guards: dict[Partition, int | NotVerified], partition: Partition) -> int:
    """Raises NotVerified."""
    guard = guards.get(partition, NO_GUARD)
    if isinstance(guard, NotVerified):
        raise guard
    return guard


def _append(
    context: RequestContext, request: ProduceRequest, partition: Partition, records: Buffer, guard: int
) -> Handling[Appended]:
    """Append a batch, after a thread has gone through its records where they are very many. Raises KafkaError."""
    version = context.api_version
    try:
        return partition.append_as_leader(
            records, request.acks, now_ms=context.node.clock.now_ms(), request_version=version, guard=guard
        )
    except LongWork as long:
        examine = long.do
    _keep_records(context, request)
    examined = yield context.node.long_work(examine)
    return partition.append_as_leader(
        examined, request.acks, now_ms=context.node.clock.now_ms(), request_version=version, guard=guard
    )


def _keep_records(context: RequestContext, request: ProduceRequest) -> None:
    """Others are served before this request is done: its records move out of the buffer that they were received in."""
    if context.in_steps:
        return
    context.in_steps = True
    if context.session is not None and context.session.give_received():
        return
    for topic in request.topics:
        for data in topic.partitions:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _check(context: RequestContext, request: ProduceRequest, partition: Partition) -> None:
    """Refuse records that a client must not write here at all. Raises KafkaError."""
    if partition.topic_partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.invalid_topic_exception)


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether a batch says that it belongs to a transaction."""
    for topic in request.topics:
        for data in topic.partitions:
            records = data.records
            if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
                continue
            if records[_FLAGS_POSITION] & TRANSACTIONAL:
                return True
    return False


def _appended(index: int, info: Appended) -> ProducedPartition:
    return ProducedPartition(index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset)


def _unless_deposed(partition: Partition | None, error: KafkaError) -> KafkaError:
    """A leader that was cut off does not hear that another one leads, and what the producer has sent there is missing
    here. Told so, librdkafka takes records for lost (`RefusedBatches`): it is to ask who leads. Kafka tells it."""
    if error.code is not ErrorCode.out_of_order_sequence_number or partition is None:
        return error
    if partition.is_followed(int(asyncio.get_running_loop().time() * 1000)):
        return error
    return KafkaError(ErrorCode.not_leader_or_follower, f"no follower was heard of lately; {error}")


def _count_failure(
    context: RequestContext, error: KafkaError, partition: Partition | None, records: Buffer | None
) -> None:
    context.count_error(error.code)
    if partition is not None:
        partition.traffic.produces += 1
        partition.traffic.failed_produces += 1
        if error.code in TOO_LARGE:
            partition.traffic.bytes_rejected += len(records or b"")
        elif error.code is ErrorCode.kafka_storage_error:
            context.node.replicas.warn_of_refusal(partition, error, context.node.clock.now_ms())


def _note_refusal(
    context: RequestContext, topic: ProduceTopic, data: produce.ProducePartition, error: KafkaError
) -> None:
    """Record that nothing was appended, as the client may have sent more batches behind it."""
    replicas, image, topic_id = context.node.replicas, context.node.image, topic.topic_id
    where: UUID | str = topic.name or ""
    if topic_id is not None:
        found = image.topic_by_id(topic_id)
        where = replicas.names.get(topic_id, topic_id if found is None else found.name)
    replicas.refusals.note(where, data.index, data.records, error, context.node.clock.now_ms())


def _failed(index: int, error: KafkaError, partition: Partition | None = None) -> ProducedPartition:
    answer = ProducedPartition(index, error.code)
    if (
        partition is not None
        and error.code not in WITHOUT_LOG_START
        and not isinstance(error, NotOneBatch | NotVerified)
    ):
        answer.log_start_offset = partition.log.log_start_offset
    if isinstance(error, InvalidRecords):
        answer.record_errors = error.record_errors
        answer.error_message = error.message
    elif isinstance(error, NotVerified):
        answer.error_message = error.message or None
    return answer


def _encode(context: RequestContext, topics: list[ProducedTopic]) -> EncodedResponse:
    response = ProduceResponse(topics)
    if context.api_version >= 10:
        _hint_at_leaders(context, response)
    data = produce.encode_response(context.api_version, context.correlation_id, response)
    return EncodedResponse((data,), len(data))


def _hint_at_leaders(context: RequestContext, response: ProduceResponse) -> None:
    """Name leader and endpoint where a partition answered that this node is not its leader (KIP-951)."""
    node_ids: set[int] = set()
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code in LEADER_ERRORS:
                image = context.node.image
                found = image.topic(topic.name) if topic.name is not None else image.topic_by_id(topic.topic_id)  # type: ignore[arg-type]
                registration = None if found is None else found.partitions.get(partition.index)
                partition.current_leader = known_leader(context, registration, node_ids)
    if node_ids:
        response.node_endpoints = endpoints_of(context, node_ids)
