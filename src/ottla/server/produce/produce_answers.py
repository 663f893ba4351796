"""Answers to produce requests: what a partition is refused with, and who is told of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS, Buffer
from ottla.replication.partition import Partition
from ottla.server.api import RequestContext
from ottla.server.metadata.leader_hints import LEADER_ERRORS, endpoints_of, known_leader
from ottla.storage.log.validation import InvalidRecords, NotOneBatch
from ottla.storage.producers.producer_entry import NotVerified

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import PartitionProduceData, ProduceRequest, TopicProduceData
    from ottla.protocol.schemas.sent import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

VERSION_MIN: Final = 3
"""Older versions have message sets, which `server/legacy` converts."""
TOPIC_IDS_SINCE: Final = 13
"""Topics are named by id (KIP-516)."""

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write to internal topics (Kafka's AdminUtils)."""

WITHOUT_LOG_START = frozenset({
    ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.not_leader_or_follower,
    ErrorCode.message_too_large, ErrorCode.record_list_too_large, ErrorCode.corrupt_message,
    ErrorCode.kafka_storage_error, ErrorCode.invalid_topic_exception, ErrorCode.invalid_required_acks,
})  # fmt: skip
"""Refusals without the log start, as ReplicaManager.appendRecordsToLeader sorts them."""

TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})


def key_of(context: RequestContext, topic: TopicProduceData) -> str | UUID:
    """The name of a topic, or its id in the versions that have ids."""
    return topic.name if context.api_version < TOPIC_IDS_SINCE else topic.topic_id


def find_partition(context: RequestContext, topic: TopicProduceData, index: int) -> Partition:
    """Raises KafkaError."""
    replicas = context.node.replicas
    if context.api_version < TOPIC_IDS_SINCE:
        return replicas.find(topic.name, index)
    return replicas.find_by_id(topic.topic_id, index)


def copy_records(request: ProduceRequest) -> None:
    """Move records out of the buffer that they were received in."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


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
    context: RequestContext,
    error: KafkaError,
    partition: Partition | None,
    records: Buffer | None,
    *,
    is_answered: bool,
) -> None:
    if not is_answered:  # errors in answers are counted with them
        context.count_error(error.code)
    if partition is not None:
        partition.traffic.produces += 1
        partition.traffic.failed_produces += 1
        if error.code in TOO_LARGE:
            partition.traffic.bytes_rejected += len(records or b"")
        elif error.code is ErrorCode.kafka_storage_error:
            context.node.replicas.warn_of_refusal(partition, error, context.node.clock.now_ms())


def note_refusal(
    context: RequestContext, topic: TopicProduceData, data: PartitionProduceData, error: KafkaError
) -> None:
    """Record that nothing was appended, as the client may have sent more batches behind it."""
    replicas, where = context.node.replicas, key_of(context, topic)
    if not isinstance(where, str):
        found = context.node.image.topic_by_id(where)
        where = replicas.names.get(where, where if found is None else found.name)
    replicas.refusals.note(where, data.index, data.records, error, context.node.clock.now_ms())


def failure_of(index: int, error: KafkaError, partition: Partition | None = None) -> PartitionProduceResponse:
    answer: PartitionProduceResponse = {"index": index, "error_code": error.code, "base_offset": -1}
    if (
        partition is not None
        and error.code not in WITHOUT_LOG_START
        and not isinstance(error, NotOneBatch | NotVerified)
    ):
        answer["log_start_offset"] = partition.log.log_start_offset
    if isinstance(error, InvalidRecords):
        answer["record_errors"] = [
            {"batch_index": number, "batch_index_error_message": message} for number, message in error.record_errors
        ]
        answer["error_message"] = error.message
    elif isinstance(error, NotVerified):
        answer["error_message"] = error.message or None
    return answer


def answer_of(context: RequestContext, topics: list[TopicProduceResponse]) -> ProduceResponse:
    response: ProduceResponse = {"responses": topics}
    if context.api_version >= 10:
        _hint_at_leaders(context, response)
    return response


def _hint_at_leaders(context: RequestContext, response: ProduceResponse) -> None:
    """Name leader and endpoint where a partition answered that this node is not its leader (KIP-951)."""
    node_ids: set[int] = set()
    has_ids, image = context.api_version >= TOPIC_IDS_SINCE, context.node.image
    for topic in response["responses"]:
        for row in topic["partition_responses"]:
            if row["error_code"] in LEADER_ERRORS:
                found = image.topic_by_id(topic["topic_id"]) if has_ids else image.topic(topic["name"])
                registration = None if found is None else found.partitions.get(row["index"])
                leader = known_leader(context, registration, node_ids)
                if leader is not None:
                    row["current_leader"] = leader
    if node_ids:
        response["node_endpoints"] = endpoints_of(context, node_ids)
