"""OffsetCommit, versions 2-10: where a group's members continue. A request that repeats one before, but for the
offsets, does not come here (`repeated_commits.py`); of others, each is a batch in the log.

Version 6 adds leader epochs (KIP-320), 7 static members (KIP-345), 10 topic ids instead of names (KIP-848). Versions
2-4 may say how long the offsets are kept.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.coordinator.group.requests import OffsetCommit, OffsetToCommit
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.protocol.offset_block import TOPIC_IDS_SINCE
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Deferred, Handling, RequestContext, api
from ottla.server.connections.incremental_free import without_frames
from ottla.server.connections.long_answers import RowsOf
from ottla.server.coordinators.repeated_commits import learn
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import group, of_topics
from ottla.steps import at_once

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import OffsetCommitRequest, OffsetCommitRequestTopic
    from ottla.protocol.schemas.sent import (
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )

COMMITTED_AT_ONCE = 200
"""A longer commit is several writes, of some milliseconds each; so many have the commits of nearly everybody."""

Topics = list[tuple[str, str, UUID, list["OffsetCommitResponsePartition"]]]
"""Each topic's name, its name and id in the request, and what is already known of its answer: the partitions that do
not exist."""


def on_error(context: RequestContext, request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    def failed(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        rows = RowsOf(topic.partitions, lambda each: _row(each.partition_index, error.code))
        return {"name": topic.name, "topic_id": topic.topic_id, "partitions": rows}

    return {"topics": RowsOf(request.topics, failed)}


def _row(number: int, error: ErrorCode) -> OffsetCommitResponsePartition:
    return {"partition_index": number, "error_code": error}


NEEDS = (group(Operation.READ), of_topics(Operation.READ, "topics.name"))


@api(ApiKey.OFFSET_COMMIT, versions=(2, 10), needs=NEEDS, on_error=on_error, learn=learn)
def handle(context: RequestContext, request: OffsetCommitRequest) -> Handling[OffsetCommitResponse | Deferred]:
    topics, offsets = yield from _resolve(context, request)
    if 0 < len(offsets) <= COMMITTED_AT_ONCE:
        waiter = _Commit(topics, offsets)
        _commit(context, request, offsets, waiter)
        return waiter.deferred
    errors: dict[TopicPartition, ErrorCode] = {}
    for start in range(0, len(offsets), COMMITTED_AT_ONCE):
        part = offsets[start : start + COMMITTED_AT_ONCE]
        reply = AwaitedReply()
        _commit(context, request, part, reply)
        try:
            errors.update((yield reply.result)["partitions"])
        except KafkaError as error:
            without_frames(error)  # they refer to the request and to what waits for the error
            errors.update((TopicPartition(each.topic, each.partition), error.code) for each in part)
        yield COMMITTED_AT_ONCE * ROW_COST
    return {"topics": (yield from _answering(topics, errors))}


def _commit(
    context: RequestContext, request: OffsetCommitRequest, offsets: list[OffsetToCommit], waiter: _Commit | AwaitedReply
) -> None:
    asked = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=offsets,
        retention_ms=None if request.retention_time == -1 else request.retention_time,
        knows_unknown_group=context.api_version >= 9,
    )
    try:
        context.node.groups.ask(waiter, asked)
    except KafkaError as error:
        without_frames(error)
        waiter.complete(error)


class _Commit:
    """Waits for the coordinator. An error is that of every partition that exists."""

    __slots__ = ("deferred", "offsets", "topics")

    def __init__(self, topics: Topics, offsets: list[OffsetToCommit]) -> None:
        self.deferred = Deferred()
        self.topics = topics
        self.offsets = offsets

    def complete(self, result: Mapping[str, dict[TopicPartition, ErrorCode]] | KafkaError) -> None:
        if isinstance(result, KafkaError):
            errors = {TopicPartition(each.topic, each.partition): result.code for each in self.offsets}
        else:
            errors = result["partitions"]
        self.deferred.complete({"topics": at_once(_answering(self.topics, errors))})


def _resolve(
    context: RequestContext, request: OffsetCommitRequest
) -> Generator[int, None, tuple[Topics, list[OffsetToCommit]]]:
    image = context.node.image
    by_id = context.api_version >= TOPIC_IDS_SINCE
    topics: Topics = []
    offsets: list[OffsetToCommit] = []
    readable = allowed(context, Operation.READ)
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)
        answers: list[OffsetCommitResponsePartition] = []
        known = asked.name if topic is None else topic.name
        topics.append((known, asked.name, asked.topic_id, answers))
        is_readable = (by_id and topic is None) or known in readable  # of an unknown id there is no name to ask for
        for each in asked.partitions:
            number = each.partition_index
            if not is_readable:
                answers.append(_row(number, ErrorCode.topic_authorization_failed))
            elif topic is not None and number in topic.partitions:
                metadata = each.committed_metadata or ""
                offset, epoch = each.committed_offset, each.committed_leader_epoch
                offsets.append(OffsetToCommit(topic.name, number, offset, epoch, metadata, topic.id))
            elif topic is None and by_id:
                answers.append(_row(number, ErrorCode.unknown_topic_id))
            else:
                answers.append(_row(number, ErrorCode.unknown_topic_or_partition))
            yield 2
    return topics, offsets


def _answering(
    topics: Topics, errors: Mapping[TopicPartition, ErrorCode]
) -> Generator[int, None, list[OffsetCommitResponseTopic]]:
    """What is answered of each topic."""
    by_topic: dict[str, list[OffsetCommitResponsePartition]] = {}
    for (topic, number), error in errors.items():
        by_topic.setdefault(topic, []).append(_row(number, error))
        yield 1
    answers: list[OffsetCommitResponseTopic] = []
    for topic, name, topic_id, known in topics:
        rows = [*known, *by_topic.pop(topic, ())]
        answers.append({"name": name, "topic_id": topic_id, "partitions": rows})
        yield 1 + len(rows) // 16
    return answers
