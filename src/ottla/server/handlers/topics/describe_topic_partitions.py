"""DescribeTopicPartitions, version 0: partitions with their eligible leaders, in pages (KIP-966).

Topics come in order of their names, all of them if none is named. At most `max.request.partition.size.limit` partitions
are in a response; its cursor says where the next request goes on.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.config.validation import validate_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import TopicImage
from ottla.model import INTERNAL_TOPICS
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.connections.long_answers import RowsOf, sorting
from ottla.server.metadata.metadata_view import OPERATIONS_NOT_ASKED, MetadataView
from ottla.server.security.authorization import EVERYTHING, allowed, authorized_operations
from ottla.server.security.permissions import Refused, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeTopicPartitionsRequest
    from ottla.protocol.schemas.sent import (
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

NAMES_AT_ONCE = 1000


def on_error(
    context: RequestContext, request: DescribeTopicPartitionsRequest, error: KafkaError
) -> DescribeTopicPartitionsResponse:
    """The error on every topic of the request."""
    row: DescribeTopicPartitionsResponseTopic = {
        "error_code": error.code,
        "topic_authorized_operations": OPERATIONS_NOT_ASKED,
    }
    return {"topics": RowsOf(request.topics, lambda topic: {"name": topic.name, **row}), "next_cursor": None}


NEEDS: Final = (
    of_topics(Operation.DESCRIBE, "topics.name", when="where topics are named"),
    of_topics(Operation.DESCRIBE, "topics", when="where all are asked for", refused=Refused.OMITTED),
)


@api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), needs=NEEDS, on_error=on_error)
def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Handling[DescribeTopicPartitionsResponse]:
    image = context.node.image
    cursor = request.cursor
    names = set(() if request.topics else image.topics_by_name)
    for start in range(0, len(request.topics), NAMES_AT_ONCE):
        names.update(topic.name for topic in request.topics[start : start + NAMES_AT_ONCE])
        yield NAMES_AT_ONCE // 4
    if cursor is not None:
        if request.topics and cursor.topic_name not in names:
            why = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
            raise KafkaError(ErrorCode.invalid_request, why)
        if cursor.partition_index < 0:
            why = f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}"
            raise KafkaError(ErrorCode.invalid_request, why)
        names = {name for name in names if name >= cursor.topic_name}
    limit = context.node.config.max_request_partition_size_limit
    room = max(min(limit, request.response_partition_limit), 1)
    placement = MetadataView(image, context.listener_name, context.node.lost)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    visible = allowed(context, Operation.DESCRIBE, log_denial=bool(request.topics))
    if visible is not EVERYTHING:
        hidden = []
        for name in names:
            if name not in visible:
                hidden.append(name)
            yield 2
        names.difference_update(hidden)
        if request.topics:
            denied += map(_denied, sorted(hidden))
    ordered = yield from sorting(names)
    for name in ordered:
        yield ROW_COST
        if room <= 0:
            return {"topics": topics + denied, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = image.topic(name)
        if topic is None:
            topics.append(_missing(context, name))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        partitions = _page(placement, topic, start, room)
        topics.append(_described(context, topic, partitions))
        if start + len(partitions) < len(topic.partitions):
            return {
                "topics": topics + denied,
                "next_cursor": {"topic_name": name, "partition_index": start + room},
            }
        room -= len(partitions)
        yield ROW_COST * len(partitions)
    return {"topics": topics + denied, "next_cursor": None}


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.topic_authorization_failed
    operations = OPERATIONS_NOT_ASKED
    return {"error_code": code, "name": name, "partitions": [], "topic_authorized_operations": operations}


def _page(
    placement: MetadataView, topic: TopicImage, start: int, room: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    return [
        {
            **placement.partition(number, partition),
            "eligible_leader_replicas": partition.elr,
            "last_known_elr": partition.last_known_elr,
        }
        for number, partition in islice(topic.partitions.items(), start, start + room)
    ]


def _described(
    context: RequestContext, topic: TopicImage, partitions: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": authorized_operations(context, ResourceType.TOPIC, topic.name),
    }


def _missing(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.unknown_topic_or_partition
    try:
        validate_topic_name(name)
    except KafkaError as error:
        code = error.code
    return {
        "error_code": code,
        "name": name,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": authorized_operations(context, ResourceType.TOPIC, name),
    }
