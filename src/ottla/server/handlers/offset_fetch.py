"""OffsetFetch, versions 1-10: the committed offsets of a group, or from version 8 of several (KIP-709).

Null topics ask for all (since 2). Version 7 adds require_stable (KIP-447), 9 a member's epoch, which classic groups do
not look at, 10 topic ids instead of names (KIP-848). An offset that is not there is -1, also in an unknown group.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final
from uuid import UUID

from ottla.coordinator.group import offsets
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group_requests import GroupToFetch, OffsetFetchRequest, TopicToFetch, decode_offset_fetch_in_steps
from ottla.protocol.group_responses import encode_offset_fetch_in_steps
from ottla.protocol.messages import ApiKey, response_header
from ottla.protocol.wire import FetchedGroup, FetchedOffset, FetchedTopic
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import ROW_COST, EncodedResponse, Handling, RequestContext, api
from ottla.server.authorization import EVERYTHING, allowed, authorize
from ottla.server.long_answers import RowsOf, count_failures
from ottla.server.permissions import Refused, of_groups, of_topics
from ottla.server.repeated_offset_fetches import learn, note

Wanted = tuple[str, UUID, Sequence[int]]


def on_error(context: RequestContext, request: OffsetFetchRequest, error: KafkaError) -> Handling[EncodedResponse]:
    if context.api_version == 1:
        (group,) = request.groups
        return (yield from _encoding(context, [(yield from _refused(context, group, error.code))]))
    groups = RowsOf(request.groups, lambda group: FetchedGroup(group.group_id, [], error.code))
    return (yield from _encoding(context, groups))


PARTITIONS_AT_ONCE = 500
"""Partitions per step; each costs a microsecond or two."""


NEEDS: Final = (
    of_groups(Operation.DESCRIBE, "groups.group_id"),
    of_topics(Operation.DESCRIBE, "groups.topics.name", when="where topics are named"),
    of_topics(Operation.DESCRIBE, "groups.topics", when="where all are asked for", refused=Refused.OMITTED),
)


@api(
    ApiKey.OFFSET_FETCH, versions=(1, 10), needs=NEEDS, on_error=on_error, decode=decode_offset_fetch_in_steps,
    learn=learn,
)  # fmt: skip
def handle(context: RequestContext, request: OffsetFetchRequest) -> Handling[EncodedResponse]:
    groups = []
    for group in request.groups:
        groups.append((yield from _fetch(context, request.require_stable, group)))
        yield ROW_COST
    response = yield from _encoding(context, groups)
    note(context, request, groups, response)
    return response


def _encoding(context: RequestContext, groups: Sequence[FetchedGroup]) -> Generator[int, None, EncodedResponse]:
    for group in groups:
        yield 1
        if group.error:
            context.count_error(group.error)
        for topic in group.topics:
            errors = [each.error for each in topic.partitions if each.error]
            if errors:
                count_failures(context, errors)
            yield 1 + len(topic.partitions) // 8
    header = response_header(ApiKey.OFFSET_FETCH, context.api_version, context.correlation_id)
    return EncodedResponse([(yield from encode_offset_fetch_in_steps(context.api_version, groups, header))])


def _fetch(context: RequestContext, require_stable: bool, group: GroupToFetch) -> Generator[int, None, FetchedGroup]:
    try:
        authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        visible = allowed(context, Operation.DESCRIBE, log_denial=group.topics is not None)
        if group.member_id is not None or group.member_epoch >= 0:
            context.node.groups.read(offsets.check_fetch, group.group_id, group.member_id, group.member_epoch)
        if group.topics is None:
            every = context.node.groups.read(offsets.committed, group.group_id)
            if visible is not EVERYTHING:
                every = [each for each in every if each[0] in visible]
            topics = _with_ids(context, (yield from _fetched(context, group.group_id, every, require_stable)))
        else:
            wanted = group.topics
            failed: list[FetchedTopic] = []
            if context.api_version >= 10:
                wanted, failed = yield from _named(context, wanted)
            if visible is not EVERYTHING:
                for topic in wanted:
                    if topic.name not in visible:
                        failed.append((yield from _failing(topic, ErrorCode.topic_authorization_failed)))
                wanted = [topic for topic in wanted if topic.name in visible]
            topics = yield from _fetched(context, group.group_id, wanted, require_stable)
            topics += failed
    except KafkaError as error:
        return (yield from _refused(context, group, error.code))
    return FetchedGroup(group.group_id, topics)


def _fetched(
    context: RequestContext, group_id: str, wanted: Sequence[Wanted], require_stable: bool
) -> Generator[int, None, list[FetchedTopic]]:
    """Raises KafkaError."""
    read = context.node.groups.read
    total = sum([len(numbers) for _, _, numbers in wanted])
    yield len(wanted) // 8
    if len(wanted) + total <= PARTITIONS_AT_ONCE:
        return read(offsets.fetch, group_id, wanted, require_stable)
    topics = []
    for name, topic_id, numbers in wanted:
        rows: list[FetchedOffset] = []
        for start in range(0, max(len(numbers), 1), PARTITIONS_AT_ONCE):
            some = numbers[start : start + PARTITIONS_AT_ONCE]
            rows += read(offsets.fetch, group_id, [(name, topic_id, some)], require_stable)[0].partitions
            yield 5 + 2 * len(some)
        topics.append(FetchedTopic(name, topic_id, rows))
    return topics


def _refused(context: RequestContext, group: GroupToFetch, error: ErrorCode) -> Generator[int, None, FetchedGroup]:
    """Version 1 can only say so of each partition."""
    topics = []
    for topic in group.topics or () if context.api_version == 1 else ():
        topics.append((yield from _failing(topic, error)))
        yield ROW_COST
    return FetchedGroup(group.group_id, topics, error)


def _named(
    context: RequestContext, topics: Sequence[TopicToFetch]
) -> Generator[int, None, tuple[list[TopicToFetch], list[FetchedTopic]]]:
    """Topics with their names, and the answers for topic ids that nobody has."""
    named, unknown = [], []
    for topic in topics:
        known = context.node.image.topic_by_id(topic.topic_id)
        if known is None:
            unknown.append((yield from _failing(topic, ErrorCode.unknown_topic_id)))
        else:
            named.append(topic._replace(name=known.name))
        yield 5
    return named, unknown


def _with_ids(context: RequestContext, topics: list[FetchedTopic]) -> list[FetchedTopic]:
    """Add topic ids: in version 10 topics are known by their ids, so deleted topics cannot be listed."""
    if context.api_version < 10:
        return topics
    found = []
    for topic in topics:
        known = context.node.image.topic(topic.name)
        if known is not None:
            found.append(topic._replace(topic_id=known.id))
    return found


def _failing(topic: TopicToFetch, error: ErrorCode) -> Generator[int, None, FetchedTopic]:
    answers: list[FetchedOffset] = []
    for start in range(0, len(topic.partition_indexes), PARTITIONS_AT_ONCE):
        some = topic.partition_indexes[start : start + PARTITIONS_AT_ONCE]
        answers += [FetchedOffset(number, error=error) for number in some]
        yield 2 + len(some)
    return FetchedTopic(topic.name, topic.topic_id, answers)
