"""Produce, versions 0-13: append producers' batches. The hot path: no copy, no task, no work per record here.

Versions 0-2 are advertised and refused by closing, as Kafka does for librdkafka's sake (KAFKA-18659), unless
`server/legacy` serves them. acks=0 has no answer, and a failure closes the connection, so that the producer looks at
the metadata again. Where an append is not committed at once (other replicas in sync, or `flush.messages` asks for an
fsync), the answer waits for the partition to say so (`WaitingProduce`), while the connection's next produce requests
begin already. Requests for one partition do not come here, but for the first: `server/produce/produce_shortcut.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD, NO_PRODUCER_ID, NOT_TRANSACTIONAL, Buffer
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, RemovedVersion
from ottla.protocol.records.record_batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, TRANSACTIONAL, LongWork
from ottla.replication.partition import ACKS_NONE, Partition
from ottla.replication.replica_log import Appended
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import (
    RECORDS_COST_SHIFT,
    CloseConnection,
    Deferred,
    Handling,
    LongRequest,
    RequestContext,
    api,
)
from ottla.server.connections.client_facts import wrote
from ottla.server.produce.produce_answers import (
    VERSION_MIN,
    answer_of,
    check_topic,
    copy_records,
    count_failure,
    failure_of,
    find_partition,
    key_of,
    note_refusal,
    unless_deposed,
)
from ottla.server.produce.produce_shortcut import learn
from ottla.server.produce.waiting_appends import WaitingProduce, must_wait
from ottla.server.security.permissions import Need, of_topics
from ottla.storage.producers.producer_entry import NotVerified

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ProduceRequest
    from ottla.protocol.schemas.sent import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

ROWS_AT_ONCE_MAX: Final = 32
"""Batches that are appended at once; more of them are appended one by one, from a copy of the request."""

APPEND_COST = 30
"""Cost of appending a small batch."""

_FLAGS_POSITION = 22
"""The lower byte of a batch's attributes."""

_PRODUCER_ID_POSITION = 43


def decode(version: int, frame: Buffer, position: int) -> ProduceRequest:
    _check_version(version)
    request: ProduceRequest | None
    request = messages.decode_short_request(ApiKey.PRODUCE, version, frame, position, 2 * ROWS_AT_ONCE_MAX)
    if request is None or sum([len(topic.partition_data) for topic in request.topic_data]) >= ROWS_AT_ONCE_MAX:
        raise LongRequest
    return request


def decode_in_steps(version: int, frame: Buffer, position: int) -> Generator[int, None, ProduceRequest]:
    _check_version(version)
    return messages.decode_request_in_steps(ApiKey.PRODUCE, version, memoryview(frame), position)


def _check_version(version: int) -> None:
    if version < VERSION_MIN:
        raise RemovedVersion(f"Produce version {version}")


def refuse_all(context: RequestContext, request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """The same error for every partition."""
    if request.acks == ACKS_NONE:
        raise CloseConnection
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            note_refusal(context, topic, data, error)
        rows = [failure_of(data.index, error) for data in topic.partition_data]
        topics.append({"name": topic.name, "topic_id": topic.topic_id, "partition_responses": rows})
    return answer_of(context, topics)


NEEDS = (
    Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id", when="with transactional batches"),
    of_topics(Operation.WRITE, "topic_data.name"),
)


@api(
    ApiKey.PRODUCE,
    versions=(0, 13),
    needs=NEEDS,
    decode=decode,
    decode_in_steps=decode_in_steps,
    on_error=refuse_all,
    pipelined=True,
    learn=learn,
    cost_shift=RECORDS_COST_SHIFT,
)
def handle(context: RequestContext, request: ProduceRequest) -> Handling[ProduceResponse | Deferred | None]:
    acks = request.acks
    acks_are_known = -1 <= acks <= 1
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
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partition = info = None
            try:
                if denied and key_of(context, topic) in denied:
                    raise KafkaError(ErrorCode.topic_authorization_failed)
                partition = find_partition(context, topic, data.index)
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
                count_failure(context, error, partition, data.records, is_answered=acks != ACKS_NONE)
                note_refusal(context, topic, data, error)
            if info is None or partition is None or data.records is None:
                if context.in_steps:
                    yield APPEND_COST
                continue
            answer = _appended(data.index, info)
            answers.append(answer)
            if (info.needs_flush or not partition.sole_in_sync) and must_wait(partition, info, acks):
                if waiting is None:
                    waiting = WaitingProduce(context, acks, request.timeout)
                waiting.add(partition, info, answer)
            if context.in_steps:  # otherwise the records still lie in the receive buffer
                yield APPEND_COST + (len(data.records) >> RECORDS_COST_SHIFT)
        if answers:
            topics.append({"name": topic.name, "topic_id": topic.topic_id, "partition_responses": answers})
    if not failed:
        _note_producer(context, request)
    if waiting is not None:
        return waiting.outcome(topics)
    if acks == ACKS_NONE:
        if failed:
            raise CloseConnection
        return None
    return answer_of(context, topics)


def _note_producer(context: RequestContext, request: ProduceRequest) -> None:
    """Note the producer of the first batch for ListClients. A client has one producer on a connection, so requests that
    a `ProduceShortcut` answers need not be looked at."""
    if not request.topic_data or not request.topic_data[0].partition_data:
        return
    records = request.topic_data[0].partition_data[0].records
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
    copy_records(request)


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether a batch says that it belongs to a transaction."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
                continue
            if records[_FLAGS_POSITION] & TRANSACTIONAL:
                return True
    return False


def _appended(index: int, info: Appended) -> PartitionProduceResponse:
    return {
        "index": index,
        "error_code": 0,
        "base_offset": info.first_offset,
        "log_append_time": info.log_append_time_ms,
        "log_start_offset": info.log_start_offset,
    }
