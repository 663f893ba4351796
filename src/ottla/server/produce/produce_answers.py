"""Answers to produce requests: what a partition is refused with, who is told of it, and the bytes."""

from __future__ import annotations

import asyncio
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS, Buffer
from ottla.protocol import produce
from ottla.protocol.produce import ProducedPartition, ProducedTopic, ProduceResponse, ProduceTopic
from ottla.replication.partition import Partition
from ottla.server.api import EncodedResponse, RequestContext
from ottla.server.metadata.leader_hints import LEADER_ERRORS, endpoints_of, known_leader
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

TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})


def check_topic(context: RequestContext, partition: Partition) -> None:
    """Refuse records that a client must not write here at all. Raises KafkaError."""
    if partition.topic_partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.invalid_topic_exception)


def unless_deposed(partition: Partition | None, error: KafkaError) -> KafkaError:
    """A leader that was cut off does not hear that another one leads, and what the producer has sent there is missing
    here. Told so, librdkafka takes records for lost (`RefusedBatches`): it is to ask who leads. Kafka tells it."""
    if error.code is not ErrorCode.out_of_order_sequence_number or partition is None:
        return error
    if partition.is_followed(int(asyncio.get_running_loop().time() * 1000)):
        return error
    return KafkaError(ErrorCode.not_leader_or_follower, f"no follower was heard of lately; {error}")


def count_failure(
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


def note_refusal(
    context: RequestContext, topic: ProduceTopic, data: produce.ProducePartition, error: KafkaError
) -> None:
    """Record that nothing was appended, as the client may have sent more batches behind it."""
    replicas, image, topic_id = context.node.replicas, context.node.image, topic.topic_id
    where: UUID | str = topic.name or ""
    if topic_id is not None:
        found = image.topic_by_id(topic_id)
        where = replicas.names.get(topic_id, topic_id if found is None else found.name)
    replicas.refusals.note(where, data.index, data.records, error, context.node.clock.now_ms())


def failure_of(index: int, error: KafkaError, partition: Partition | None = None) -> ProducedPartition:
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


def encode_answer(context: RequestContext, topics: list[ProducedTopic]) -> EncodedResponse:
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
