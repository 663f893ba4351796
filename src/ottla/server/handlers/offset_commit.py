"""OffsetCommit, versions 2-10: where a group's members continue. A request that repeats one before, but for the
offsets, does not come here (`repeated_commits.py`); of others, each is a batch in the log.

Version 6 adds leader epochs (KIP-320), 7 static members (KIP-345), 10 topic ids instead of names (KIP-848). Versions
2-4 may say how long the offsets are kept.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from ottla.coordinator.group.requests import OffsetCommit, OffsetToCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey, response_header
from ottla.protocol.offset_block import TOPIC_IDS_SINCE
from ottla.protocol.offset_commit import (
    CommittedTopic,
    OffsetCommitRequest,
    TopicToCommit,
    decode_in_steps,
    encode_response_in_steps,
)
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Deferred, EncodedResponse, Handling, RequestContext, api
from ottla.server.authorization import allowed
from ottla.server.coordinator_replies import AwaitedReply
from ottla.server.freeing import without_frames
from ottla.server.long_answers import RowsOf, count_failures
from ottla.server.permissions import group, of_topics
from ottla.server.repeated_commits import learn
from ottla.steps import at_once

COUNTED_AT_ONCE = 1000
"""Rows whose errors are counted in one go."""
COMMITTED_AT_ONCE = 200
"""A longer commit is several writes, of some milliseconds each; so many have the commits of nearly everybody."""

Topics = list[tuple[str, CommittedTopic]]
"""Each topic's name and what is already known of its answer: the partitions that do not exist."""


def on_error(context: RequestContext, request: OffsetCommitRequest, error: KafkaError) -> Handling[EncodedResponse]:
    def failed(topic: TopicToCommit) -> CommittedTopic:
        name, topic_id, partitions = topic
        return CommittedTopic(name, topic_id, RowsOf(partitions, lambda each: (each.partition_index, error.code)))

    return (yield from _encoding(context, RowsOf(request.topics, failed)))


NEEDS = (group(Operation.READ), of_topics(Operation.READ, "topics.name"))


@api(ApiKey.OFFSET_COMMIT, versions=(2, 10), needs=NEEDS, on_error=on_error, decode=decode_in_steps, learn=learn)
def handle(context: RequestContext, request: OffsetCommitRequest) -> Handling[EncodedResponse | Deferred]:
    topics, offsets = yield from _resolve(context, request)
    if 0 < len(offsets) <= COMMITTED_AT_ONCE:
        waiter = _Commit(context, topics, offsets)
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
    return (yield from _encoding(context, (yield from _answering(topics, errors))))


def _commit(
    context: RequestContext, request: OffsetCommitRequest, offsets: list[OffsetToCommit], waiter: _Commit | AwaitedReply
) -> None:
    asked = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=offsets,
        retention_ms=None if request.retention_time_ms == -1 else request.retention_time_ms,
        knows_unknown_group=context.api_version >= 9,
    )
    try:
        context.node.groups.ask(waiter, asked)
    except KafkaError as error:
        without_frames(error)
        waiter.complete(error)


class _Commit:
    """Waits for the coordinator. An error is that of every partition that exists."""

    __slots__ = ("context", "deferred", "offsets", "topics")

    def __init__(self, context: RequestContext, topics: Topics, offsets: list[OffsetToCommit]) -> None:
        self.deferred = Deferred()
        self.context = context
        self.topics = topics
        self.offsets = offsets

    def complete(self, result: Mapping[str, dict[TopicPartition, ErrorCode]] | KafkaError) -> None:
        if isinstance(result, KafkaError):
            errors = {TopicPartition(each.topic, each.partition): result.code for each in self.offsets}
        else:
            errors = result["partitions"]
        self.deferred.complete(_encoded(self.context, _answer(self.topics, errors)))


def _resolve(
    context: RequestContext, request: OffsetCommitRequest
) -> Generator[int, None, tuple[Topics, list[OffsetToCommit]]]:
    image = context.node.image
    by_id = context.api_version >= TOPIC_IDS_SINCE
    topics: Topics = []
    offsets: list[OffsetToCommit] = []
    readable = allowed(context, Operation.READ)
    for name, topic_id, partitions in request.topics:
        topic = image.topic_by_id(topic_id) if by_id else image.topic(name)
        answers: list[tuple[int, ErrorCode]] = []
        known = name if topic is None else topic.name
        topics.append((known, CommittedTopic(name, topic_id, answers)))
        is_readable = (by_id and topic is None) or known in readable  # of an unknown id there is no name to ask for
        for number, offset, leader_epoch, metadata in partitions:
            if not is_readable:
                answers.append((number, ErrorCode.topic_authorization_failed))
            elif topic is not None and number in topic.partitions:
                offsets.append(OffsetToCommit(topic.name, number, offset, leader_epoch, metadata or "", topic.id))
            elif topic is None and by_id:
                answers.append((number, ErrorCode.unknown_topic_id))
            else:
                answers.append((number, ErrorCode.unknown_topic_or_partition))
            yield 2
    return topics, offsets


def _answer(topics: Topics, errors: Mapping[TopicPartition, ErrorCode]) -> list[CommittedTopic]:
    return at_once(_answering(topics, errors))


def _answering(
    topics: Topics, errors: Mapping[TopicPartition, ErrorCode]
) -> Generator[int, None, list[CommittedTopic]]:
    by_topic: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (topic, number), error in errors.items():
        by_topic.setdefault(topic, []).append((number, error))
        yield 1
    answers = []
    for topic, asked in topics:
        answers.append(CommittedTopic(asked.name, asked.topic_id, [*asked.partitions, *by_topic.pop(topic, ())]))
        yield 1 + len(answers[-1].partitions) // 16
    return answers


def _encoded(context: RequestContext, topics: list[CommittedTopic]) -> EncodedResponse:
    return at_once(_encoding(context, topics))


def _encoding(context: RequestContext, topics: Sequence[CommittedTopic]) -> Generator[int, None, EncodedResponse]:
    version = context.api_version
    for topic in topics:
        for start in range(0, len(topic.partitions), COUNTED_AT_ONCE):
            some = topic.partitions[start : start + COUNTED_AT_ONCE]
            count_failures(context, (error for _, error in some if error))
            yield len(some) // 4
        yield 5
    header = response_header(ApiKey.OFFSET_COMMIT, version, context.correlation_id)
    return EncodedResponse([(yield from encode_response_in_steps(version, topics, header=header))])
