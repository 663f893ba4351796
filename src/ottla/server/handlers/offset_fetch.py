"""OffsetFetch, versions 1-10: the committed offsets of a group, or from version 8 of several (KIP-709).

Null topics ask for all (since 2). Version 7 adds require_stable (KIP-447), 9 a member's epoch, which classic groups do
not look at, 10 topic ids instead of names (KIP-848). An offset that is not there is -1, also in an unknown group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group_requests import GroupToFetch, OffsetFetchRequest, TopicToFetch, decode_offset_fetch
from ottla.protocol.group_responses import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    encode_offset_fetch,
    encode_offset_fetch_in_steps,
)
from ottla.protocol.messages import ROWS_PER_STEP, ApiKey, response_header
from ottla.server.api import EncodedResponse, RequestContext, Response, api
from ottla.server.long_answers import count_failures, in_steps


def on_error(context: RequestContext, request: OffsetFetchRequest, error: KafkaError) -> EncodedResponse:
    return _encoded(context, [_refused(context, group, error.code) for group in request.groups])


@api(ApiKey.OFFSET_FETCH, versions=(1, 10), on_error=on_error, decode=decode_offset_fetch)
def handle(context: RequestContext, request: OffsetFetchRequest) -> EncodedResponse | Awaitable[Response]:
    if len(request.groups) > ROWS_PER_STEP:
        return _many(context, request)
    return _encoded(context, [_fetch(context, request.require_stable, group) for group in request.groups])


async def _many(context: RequestContext, request: OffsetFetchRequest) -> Response:
    fetch = partial(_fetch, context, request.require_stable)
    groups = await run_yielding(in_steps(request.groups, fetch))
    _count_errors(context, groups)
    header = response_header(ApiKey.OFFSET_FETCH, context.api_version, context.correlation_id)
    return EncodedResponse([await run_yielding(encode_offset_fetch_in_steps(context.api_version, groups, header))])


def _count_errors(context: RequestContext, groups: Sequence[FetchedGroup]) -> None:
    errors = [group.error for group in groups if group.error]
    errors += [each.error for group in groups for topic in group.topics for each in topic.partitions if each.error]
    if errors:
        count_failures(context, errors)


def _encoded(context: RequestContext, groups: Sequence[FetchedGroup]) -> EncodedResponse:
    _count_errors(context, groups)
    header = response_header(ApiKey.OFFSET_FETCH, context.api_version, context.correlation_id)
    return EncodedResponse([encode_offset_fetch(context.api_version, groups, header)])


def _fetch(context: RequestContext, require_stable: bool, group: GroupToFetch) -> FetchedGroup:
    groups = context.node.groups
    try:
        if group.topics is None:
            topics = _with_ids(context, groups.fetch_offsets(group.group_id, None, require_stable))
        elif context.api_version < 10:
            topics = groups.fetch_offsets(group.group_id, group.topics, require_stable)
        else:
            wanted, unknown = _named(context, group.topics)
            topics = groups.fetch_offsets(group.group_id, wanted, require_stable) + unknown
    except KafkaError as error:
        return _refused(context, group, error.code)
    return FetchedGroup(group.group_id, topics)


def _refused(context: RequestContext, group: GroupToFetch, error: ErrorCode) -> FetchedGroup:
    """Version 1 can only say so of each partition."""
    topics = [_failed(topic, error) for topic in group.topics or ()] if context.api_version == 1 else []
    return FetchedGroup(group.group_id, topics, error)


def _named(context: RequestContext, topics: Sequence[TopicToFetch]) -> tuple[list[TopicToFetch], list[FetchedTopic]]:
    """Topics with their names, and the answers for topic ids that nobody has."""
    named, unknown = [], []
    for topic in topics:
        known = context.node.image.topic_by_id(topic.topic_id)
        if known is None:
            unknown.append(_failed(topic, ErrorCode.unknown_topic_id))
        else:
            named.append(topic._replace(name=known.name))
    return named, unknown


def _with_ids(context: RequestContext, topics: list[FetchedTopic]) -> list[FetchedTopic]:
    """In version 10 topics are known by their ids, so that those that are gone cannot be listed."""
    if context.api_version < 10:
        return topics
    found = []
    for topic in topics:
        known = context.node.image.topic(topic.name)
        if known is not None:
            found.append(topic._replace(topic_id=known.id))
    return found


def _failed(topic: TopicToFetch, error: ErrorCode) -> FetchedTopic:
    answers = [FetchedOffset(number, error=error) for number in topic.partition_indexes]
    return FetchedTopic(topic.name, topic.topic_id, answers)
