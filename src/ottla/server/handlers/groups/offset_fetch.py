"""OffsetFetch, versions 1-10: the committed offsets of a group, or from version 8 of several (KIP-709).

Null topics ask for all (since 2). Version 7 adds require_stable (KIP-447), which also waits for commits that are not
replicated yet, 9 a member's epoch, which classic groups do not look at, 10 topic ids instead of names (KIP-848). An
offset that is not there is -1, also in an unknown group.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.group import offsets
from ottla.coordinator.group.offsets import WantedTopic
from ottla.coordinator.group.requests import OffsetsCommitted
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey, encode_response_in_steps
from ottla.protocol.wire import FetchedGroup, FetchedOffset, FetchedTopic
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import ROW_COST, EncodedResponse, Handling, RequestContext, api
from ottla.server.connections.long_answers import RowsOf, count_failures
from ottla.server.coordinators.repeated_offset_fetches import learn, note
from ottla.server.security.authorization import EVERYTHING, allowed, authorize
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchRequestTopics

GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
Fetched = list[FetchedTopic]


class GroupToFetch(NamedTuple):
    """What is asked of one group, in any version."""

    group_id: str
    topics: Sequence[WantedTopic] | None
    """None for all of them."""
    member_id: str | None = None
    member_epoch: int = -1


def on_error(context: RequestContext, request: OffsetFetchRequest, error: KafkaError) -> Handling[EncodedResponse]:
    if context.api_version == 1:
        group = GroupToFetch(request.group_id, (yield from _wanted_by_name(request.topics)))
        return (yield from _encoding(context, [(yield from _refused(context, group, error.code))]))
    names = (
        [request.group_id] if context.api_version < GROUPS_SINCE else RowsOf(request.groups, lambda each: each.group_id)
    )
    return (yield from _encoding(context, RowsOf(names, lambda name: FetchedGroup(name, [], error.code))))


PARTITIONS_AT_ONCE = 500
"""Partitions per step; each costs a microsecond or two."""


NEEDS: Final = (
    of_groups(Operation.DESCRIBE, "groups.group_id"),
    of_topics(Operation.DESCRIBE, "groups.topics.name", when="where topics are named"),
    of_topics(Operation.DESCRIBE, "groups.topics", when="where all are asked for", refused=Refused.OMITTED),
)


@api(ApiKey.OFFSET_FETCH, versions=(1, 10), needs=NEEDS, on_error=on_error, learn=learn)
def handle(context: RequestContext, request: OffsetFetchRequest) -> Handling[EncodedResponse]:
    if context.api_version < GROUPS_SINCE:
        asked = [GroupToFetch(request.group_id, (yield from _wanted_by_name(request.topics)))]
    else:
        asked = []
        for each in request.groups:
            asked.append(
                GroupToFetch(each.group_id, (yield from _wanted(each.topics)), each.member_id, each.member_epoch)
            )
    groups = []
    for group in asked:
        groups.append((yield from _fetch(context, request.require_stable, group)))
        yield ROW_COST
    response = yield from _encoding(context, groups)
    note(context, request, groups, response)
    return response


def _wanted_by_name(
    topics: Sequence[OffsetFetchRequestTopic] | None,
) -> Generator[int, None, list[WantedTopic] | None]:
    if topics is None:
        return None
    wanted: list[WantedTopic] = []
    for each in topics:
        wanted.append((each.name, ZERO_UUID, each.partition_indexes))
        yield 1
    return wanted


def _wanted(topics: Sequence[OffsetFetchRequestTopics] | None) -> Generator[int, None, list[WantedTopic] | None]:
    if topics is None:
        return None
    wanted: list[WantedTopic] = []
    for each in topics:
        wanted.append((each.name, each.topic_id, each.partition_indexes))
        yield 1
    return wanted


def _encoding(context: RequestContext, groups: Sequence[FetchedGroup]) -> Generator[int, None, EncodedResponse]:
    for group in groups:
        yield 1
        if group.error_code:
            context.count_error(group.error_code)
        for topic in group.topics:
            errors = [each.error_code for each in topic.partitions if each.error_code]
            if errors:
                count_failures(context, errors)
            yield 1 + len(topic.partitions) // 8
    version = context.api_version
    values: dict[str, object] = {"groups": groups}
    if version < GROUPS_SINCE:
        values = {"topics": groups[0].topics, "error_code": groups[0].error_code}
    steps = encode_response_in_steps(ApiKey.OFFSET_FETCH, version, context.correlation_id, values)
    return EncodedResponse([(yield from steps)])


def _fetch(context: RequestContext, require_stable: bool, group: GroupToFetch) -> Handling[FetchedGroup]:
    try:
        authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        visible = allowed(context, Operation.DESCRIBE, log_denial=group.topics is not None)
        if group.member_id is not None or group.member_epoch >= 0:
            context.node.groups.read(offsets.check_fetch, group.group_id, group.member_id, group.member_epoch)
        if require_stable and context.node.groups.read_settled(offsets.version, group.group_id) is None:
            yield from _until_committed(context, group.group_id)
        if group.topics is None:
            every = context.node.groups.read(offsets.committed, group.group_id)
            if visible is not EVERYTHING:
                every = [each for each in every if each[0] in visible]
            topics = _with_ids(context, (yield from _fetched(context, group.group_id, every, require_stable)))
        else:
            wanted = group.topics
            failed: Fetched = []
            if context.api_version >= TOPIC_IDS_SINCE:
                wanted, failed = yield from _named(context, wanted)
            if visible is not EVERYTHING:
                for topic in wanted:
                    if topic[0] not in visible:
                        failed.append((yield from _failing(topic, ErrorCode.topic_authorization_failed)))
                wanted = [topic for topic in wanted if topic[0] in visible]
            topics = yield from _fetched(context, group.group_id, wanted, require_stable)
            topics += failed
    except KafkaError as error:
        return (yield from _refused(context, group, error.code))
    return FetchedGroup(group.group_id, topics)


def _until_committed(context: RequestContext, group_id: str) -> Handling[None]:
    """Wait for the writes under way. Raises NOT_COORDINATOR if they take too long, as Kafka does: consumers before 3.9
    do not retry an OffsetFetch for every error, and for this one they look for the coordinator again."""
    waiter = AwaitedReply()
    context.node.groups.ask(waiter, OffsetsCommitted(group_id))
    try:
        yield waiter.result
    except KafkaError as error:
        is_late = error.code is ErrorCode.coordinator_not_available
        raise KafkaError(ErrorCode.not_coordinator) if is_late else error from None


def _fetched(
    context: RequestContext, group_id: str, wanted: Sequence[WantedTopic], require_stable: bool
) -> Generator[int, None, Fetched]:
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
    context: RequestContext, topics: Sequence[WantedTopic]
) -> Generator[int, None, tuple[list[WantedTopic], Fetched]]:
    """Topics with their names, and the answers for topic ids that nobody has."""
    named, unknown = [], []
    for topic in topics:
        _, topic_id, numbers = topic
        known = context.node.image.topic_by_id(topic_id)
        if known is None:
            unknown.append((yield from _failing(topic, ErrorCode.unknown_topic_id)))
        else:
            named.append((known.name, topic_id, numbers))
        yield 5
    return named, unknown


def _with_ids(context: RequestContext, topics: Fetched) -> Fetched:
    """Add topic ids: in version 10 topics are known by their ids, so deleted topics cannot be listed."""
    if context.api_version < TOPIC_IDS_SINCE:
        return topics
    found = []
    for topic in topics:
        known = context.node.image.topic(topic.name)
        if known is not None:
            found.append(topic._replace(topic_id=known.id))
    return found


def _failing(topic: WantedTopic, error: ErrorCode) -> Generator[int, None, FetchedTopic]:
    name, topic_id, numbers = topic
    answers: list[FetchedOffset] = []
    for start in range(0, len(numbers), PARTITIONS_AT_ONCE):
        some = numbers[start : start + PARTITIONS_AT_ONCE]
        answers += [FetchedOffset(number, error_code=error) for number in some]
        yield 2 + len(some)
    return FetchedTopic(name, topic_id, answers)
