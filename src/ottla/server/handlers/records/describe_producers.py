"""DescribeProducers, version 0: the producers that a partition's leader remembers (KIP-664)."""

from __future__ import annotations

from collections.abc import Container, Generator
from typing import TYPE_CHECKING

from ottla.config.validation import validate_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.security.authorization import allowed, refusal
from ottla.server.security.permissions import of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeProducersRequest
    from ottla.protocol.schemas.sent import DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse


@api(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), needs=(of_topics(Operation.READ, "topics.name"),))
def handle(context: RequestContext, request: DescribeProducersRequest) -> Handling[DescribeProducersResponse]:
    topics: list[TopicResponse] = []
    readable = allowed(context, Operation.READ)
    for topic in request.topics:
        partitions = []
        for number in topic.partition_indexes:
            partitions.append((yield from _describe(context, topic.name, number, readable)))
            yield ROW_COST
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _describe(
    context: RequestContext, topic: str, number: int, readable: Container[str]
) -> Generator[int, None, PartitionResponse]:
    answer: PartitionResponse = {"partition_index": number, "error_code": ErrorCode.none, "active_producers": []}
    try:
        validate_topic_name(topic)
        if topic not in readable:
            raise refusal(context, Operation.READ, ResourceType.TOPIC, topic)
        if context.node.image.topic(topic) is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
        partition = context.node.replicas.find(topic, number)
        partition.check_leader()
    except KafkaError as refused:
        answer["error_code"] = refused.code
        answer["error_message"] = refused.message
        return answer
    rows: list[ProducerState] = []
    for producer_id, entry in list(partition.log.producer_state.active_producers()):
        row: ProducerState = {
            "producer_id": producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": -1
            if entry.current_txn_first_offset is None
            else entry.current_txn_first_offset,
        }
        rows.append(row)
        yield ROW_COST
    answer["active_producers"] = rows
    return answer
