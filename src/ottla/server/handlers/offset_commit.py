"""OffsetCommit, versions 2-10: where a group's members continue. A request that repeats one before, but for the
offsets, does not come here (`repeated_commits.py`); of others, each is a batch in the log.

Version 6 adds leader epochs (KIP-320), 7 static members (KIP-345), 10 topic ids instead of names (KIP-848). Versions
2-4 may say how long the offsets are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.coordinator.group.requests import OffsetCommit, OffsetToCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey, response_header
from ottla.protocol.offset_commit import (
    TOPIC_IDS_SINCE,
    CommittedTopic,
    OffsetCommitRequest,
    decode_request,
    encode_response,
)
from ottla.server.api import Deferred, EncodedResponse, RequestContext, Response, api
from ottla.server.repeated_commits import learn

Topics = list[tuple[str, CommittedTopic]]
"""Each topic's name and what is already known of its answer: the partitions that do not exist."""


def on_error(context: RequestContext, request: OffsetCommitRequest, error: KafkaError) -> Response:
    return _encoded(
        context,
        [
            CommittedTopic(name, topic_id, [(each.partition_index, error.code) for each in partitions])
            for name, topic_id, partitions in request.topics
        ],
    )


@api(ApiKey.OFFSET_COMMIT, versions=(2, 10), on_error=on_error, decode=decode_request, learn=learn)
def handle(context: RequestContext, request: OffsetCommitRequest) -> Response | Deferred:
    topics, offsets = _resolve(context, request)
    if not offsets:
        return _answer(context, topics, {})
    asked = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=offsets,
        retention_ms=None if request.retention_time_ms == -1 else request.retention_time_ms,
        knows_unknown_group=context.api_version >= 9,
    )
    waiter = _Commit(context, topics, offsets)
    try:
        context.node.groups.commit(waiter, asked)
    except KafkaError as error:
        waiter.complete(error)
    return waiter.deferred


class _Commit:
    """Waits for the coordinator. An error is that of every partition that exists."""

    __slots__ = ("context", "deferred", "offsets", "topics")

    def __init__(self, context: RequestContext, topics: Topics, offsets: list[OffsetToCommit]) -> None:
        self.deferred = Deferred()
        self.context = context
        self.topics = topics
        self.offsets = offsets

    def complete(self, result: Mapping[str, Any] | KafkaError) -> None:
        if isinstance(result, KafkaError):
            errors = {TopicPartition(each.topic, each.partition): result.code for each in self.offsets}
        else:
            errors = result["partitions"]
        self.deferred.complete(_answer(self.context, self.topics, errors))


def _resolve(context: RequestContext, request: OffsetCommitRequest) -> tuple[Topics, list[OffsetToCommit]]:
    image = context.node.image
    by_id = context.api_version >= TOPIC_IDS_SINCE
    topics: Topics = []
    offsets: list[OffsetToCommit] = []
    for name, topic_id, partitions in request.topics:
        topic = image.topic_by_id(topic_id) if by_id else image.topic(name)
        answers: list[tuple[int, ErrorCode]] = []
        topics.append((name if topic is None else topic.name, CommittedTopic(name, topic_id, answers)))
        for number, offset, leader_epoch, metadata in partitions:
            if topic is not None and number in topic.partitions:
                offsets.append(OffsetToCommit(topic.name, number, offset, leader_epoch, metadata or "", topic.id))
            elif topic is None and by_id:
                answers.append((number, ErrorCode.unknown_topic_id))
            else:
                answers.append((number, ErrorCode.unknown_topic_or_partition))
    return topics, offsets


def _answer(context: RequestContext, topics: Topics, errors: Mapping[TopicPartition, ErrorCode]) -> Response:
    by_topic: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (topic, number), error in errors.items():
        by_topic.setdefault(topic, []).append((number, error))
    return _encoded(
        context,
        [
            CommittedTopic(asked.name, asked.topic_id, [*asked.partitions, *by_topic.pop(topic, ())])
            for topic, asked in topics
        ],
    )


def _encoded(context: RequestContext, topics: list[CommittedTopic]) -> EncodedResponse:
    version = context.api_version
    for topic in topics:
        for _, error in topic.partitions:
            if error:
                context.node.metrics.api(ApiKey.OFFSET_COMMIT).failed(ErrorCode(error).name.upper())
    header = response_header(ApiKey.OFFSET_COMMIT, version, context.correlation_id)
    return EncodedResponse([encode_response(version, topics, header=header)])
