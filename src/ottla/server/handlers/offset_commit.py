"""OffsetCommit, versions 2-10: where a group's members continue. One batch in the log per request.

Version 6 adds leader epochs (KIP-320), 7 static members (KIP-345), 10 topic ids instead of names (KIP-848). Retention
times that old clients (2-4) send are ignored, as Kafka 4 does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.coordinator.group.requests import OffsetCommit, OffsetToCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.server.api import Deferred, RequestContext, Response, api
from ottla.server.waiting import Finishing


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {
        "topics": [
            {
                "name": getattr(topic, "name", ""),
                "topic_id": getattr(topic, "topic_id", None),
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": error.code}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


@api(ApiKey.OFFSET_COMMIT, versions=(2, 10), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Response | Deferred:
    topics, offsets = _resolve(context, request)
    asked = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        offsets=tuple(offsets),
        knows_unknown_group=context.api_version >= 9,
    )

    def finish(result: Mapping[str, Any]) -> Mapping[str, Any]:
        return _answer(topics, result["partitions"])

    if not offsets:
        return finish({"partitions": {}})
    waiter = Finishing(finish)
    try:
        context.node.groups.commit(waiter, asked)
    except KafkaError as error:
        return _answer(topics, {TopicPartition(each.topic, each.partition): error.code for each in offsets})
    return waiter.deferred


Topics = list[tuple[str, dict[str, Any]]]
"""Each topic's name and what is already known of its answer: the partitions that do not exist."""


def _resolve(context: RequestContext, request: Any) -> tuple[Topics, list[OffsetToCommit]]:
    image = context.node.image
    by_id = context.api_version >= 10
    topics: Topics = []
    offsets: list[OffsetToCommit] = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id or ZERO_UUID) if by_id else image.topic(asked.name)
        answers = []
        unknown = ErrorCode.unknown_topic_id if by_id and topic is None else ErrorCode.unknown_topic_or_partition
        for partition in asked.partitions:
            number = partition.partition_index
            if topic is None or number not in topic.partitions:
                answers.append({"partition_index": number, "error_code": unknown})
                continue
            epoch = getattr(partition, "committed_leader_epoch", -1)
            metadata = partition.committed_metadata or ""
            offsets.append(OffsetToCommit(topic.name, number, partition.committed_offset, epoch, metadata, topic.id))
        name = topic.name if topic is not None else "" if by_id else asked.name
        topic_id = asked.topic_id if by_id else None
        topics.append((name, {"name": name, "topic_id": topic_id, "partitions": answers}))
    return topics, offsets


def _answer(topics: Topics, results: Mapping[TopicPartition, ErrorCode]) -> Mapping[str, Any]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), error in results.items():
        by_topic.setdefault(topic, []).append({"partition_index": number, "error_code": error})
    return {
        "topics": [{**answer, "partitions": answer["partitions"] + by_topic.pop(name, [])} for name, answer in topics]
    }
