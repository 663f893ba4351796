"""Produce, versions 0-13: append producers' batches. The hot path: no copy, no task, no work per record here.

Versions 0-2 are advertised and refused by closing, as Kafka does for librdkafka's sake (KAFKA-18659), unless
`server/legacy` serves them. acks=0 has no answer, and a failure closes the connection, so that the producer looks at
the metadata again. Where an append is not committed at once (other replicas in sync, or `flush.messages` asks for an
fsync), the answer waits for the partition to say so (`WaitingProduce`), while the connection's next produce requests
begin already. Requests for one partition do not come here, but for the first: `server/produce/produce_shortcut.py`.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD, NO_PRODUCER_ID, NOT_TRANSACTIONAL, Buffer
from ottla.protocol import produce
from ottla.protocol.messages import ApiKey, RemovedVersion
from ottla.protocol.produce import ProducedPartition, ProducedTopic, ProduceRequest
from ottla.protocol.records.record_batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, TRANSACTIONAL, LongWork
from ottla.replication.partition import ACKS_NONE, Partition
from ottla.replication.replica_log import Appended
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import (
    RECORDS_COST_SHIFT,
    CloseConnection,
    Deferred,
    Handling,
    RequestContext,
    Response,
    api,
)
from ottla.server.connections.client_facts import wrote
from ottla.server.produce.produce_answers import (
    check_topic,
    count_failure,
    encode_answer,
    failure_of,
    note_refusal,
    unless_deposed,
)
from ottla.server.produce.produce_shortcut import learn
from ottla.server.produce.waiting_appends import WaitingProduce, must_wait
from ottla.server.security.permissions import Need, of_topics
from ottla.storage.producers.producer_entry import NotVerified

APPEND_COST = 30
"""Cost of appending a small batch."""

_FLAGS_POSITION = 22
"""The lower byte of a batch's attributes."""

_PRODUCER_ID_POSITION = 43


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
            note_refusal(context, topic, data, error)
    return encode_answer(
        context,
        [ProducedTopic(t.name, t.topic_id, [failure_of(p.index, error) for p in t.partitions]) for t in request.topics],
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
                check_topic(context, partition)
                if data.records is None:
                    raise KafkaError(ErrorCode.invalid_record)
                if not acks_are_known:
                    raise KafkaError(ErrorCode.invalid_required_acks)
                guard = NOT_TRANSACTIONAL if guards is None else _guard_of(guards, partition)
                info = yield from _append(context, request, partition, data.records, guard)
            except KafkaError as refused:
                failed = True
                error = unless_deposed(partition, refused)
                answers.append(failure_of(data.index, error, partition))
                count_failure(context, error, partition, data.records)
                note_refusal(context, topic, data, error)
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
    return encode_answer(context, topics)


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
