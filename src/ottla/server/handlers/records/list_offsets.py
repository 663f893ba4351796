"""ListOffsets, versions 1-11: offsets by time, and the special ones (KIP-79, 396, 734, 405, 1005, 1023).

Special timestamps: -1 latest (last stable offset for read_committed), -2 earliest, -3 of the largest timestamp (version
7), -4 earliest local (8), -5 latest tiered (9), -6 earliest not yet tiered (11). A special timestamp of a later
version, or an unknown one, is UNSUPPORTED_VERSION. Nothing is tiered here, so -5 and -6 find nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TimestampAndOffset
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.fetch.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    LOG_END,
    MAX_TIMESTAMP,
    NOTHING,
    find_offset,
)
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ListOffsetsPartition, ListOffsetsRequest
    from ottla.protocol.schemas.sent import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse

SPECIAL_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9,
                 EARLIEST_PENDING_UPLOAD: 11}  # fmt: skip
"""The request version that brought each special timestamp."""


@api(ApiKey.LIST_OFFSETS, versions=(1, 11), needs=(of_topics(Operation.DESCRIBE, "topics.name"),))
def handle(context: RequestContext, request: ListOffsetsRequest) -> Handling[ListOffsetsResponse]:
    isolation = LOG_END if request.replica_id >= 0 else request.isolation_level
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            counts[topic.name, asked.partition_index] += 1
            yield 1
    topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    denied: list[ListOffsetsTopicResponse] = []
    visible = allowed(context, Operation.DESCRIBE)
    for topic in request.topics:
        if topic.name not in visible:
            denied.append({"name": topic.name, "partitions": RowsOf(topic.partitions, _denied)})
            yield 1
            continue
        for asked in topic.partitions:
            number = asked.partition_index
            try:
                if counts[topic.name, number] > 1:
                    raise KafkaError(ErrorCode.invalid_request)
                timestamp, offset, epoch = yield from _look_up(context, topic.name, asked, isolation)
                error = ErrorCode.none
            except KafkaError as refused:
                error = refused.code
                timestamp, offset, epoch = NOTHING
            topics.setdefault(topic.name, {})[number] = {
                "partition_index": number,
                "error_code": error,
                "timestamp": timestamp,
                "offset": offset,
                "leader_epoch": epoch,
            }
            yield ROW_COST
    found: list[ListOffsetsTopicResponse] = [
        {"name": name, "partitions": list(answers.values())} for name, answers in topics.items()
    ]
    return {"topics": found + denied}


def _denied(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = NOTHING
    return {
        "partition_index": asked.partition_index,
        "error_code": ErrorCode.topic_authorization_failed,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _look_up(
    context: RequestContext, topic: str, asked: ListOffsetsPartition, isolation: int
) -> Handling[TimestampAndOffset]:
    timestamp = asked.timestamp
    if timestamp < 0 and context.api_version < SPECIAL_SINCE.get(timestamp, context.api_version + 1):
        raise KafkaError(ErrorCode.unsupported_version)
    partition = context.node.replicas.find(topic, asked.partition_index)
    partition.check_leader(asked.current_leader_epoch)
    return (yield from find_offset(context, partition, timestamp, isolation))
