"""StreamsGroupHeartbeat, versions 0 and 1: a member of a streams application joins, stays, or leaves (KIP-1071).

It learns from the answer which tasks it has, and what keeps the application from running. Internal topics that are
missing are created meanwhile. See `coordinator/group/streams/heartbeat.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.config.validation import validate_topic_name
from ottla.coordinator.group.requests import StreamsHeartbeat, TaskOffsets, TaskRows
from ottla.coordinator.group.streams.topology import ITEMS_MAX, TopologyStatus
from ottla.drivers.controller.controller_channel import Requester
from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import (
    CopartitionGroup,
    StreamsEndpoint,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import Deferred, Handling, RequestContext, api
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.coordinators.streams_topics import streams_topics
from ottla.server.security.authorization import allowed, authorize, refusal
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.topology import InternalTopic
    from ottla.protocol.schemas import received
    from ottla.protocol.schemas.sent import Status, StreamsGroupHeartbeatResponse

    class _Answer(StreamsGroupHeartbeatResponse, total=False):
        """What the coordinator says."""

        creatable: Mapping[str, InternalTopic]


T = TypeVar("T")
R = TypeVar("R")

ROWS_AT_ONCE: Final = 500
NOTHING_ASSIGNED: StreamsGroupHeartbeatResponse = {
    "active_tasks": None, "standby_tasks": None, "warmup_tasks": None, "partitions_by_user_endpoint": None,
}  # fmt: skip


def on_error(
    context: RequestContext, request: received.StreamsGroupHeartbeatRequest, error: KafkaError
) -> StreamsGroupHeartbeatResponse:
    message = None if error.code is ErrorCode.unknown_server_error else error.message
    return {"error_code": error.code, "error_message": message, **NOTHING_ASSIGNED}


NEEDS: Final = (
    of_groups(Operation.READ, "group_id", refused=Refused.REQUEST),
    of_topics(Operation.DESCRIBE, "topology", refused=Refused.REQUEST),
    of_topics(
        Operation.CREATE, "topology", when="to have internal topics created", refused=Refused.OMITTED,
        instead=(Operation.CREATE,),
    ),
)  # fmt: skip


@api(ApiKey.STREAMS_GROUP_HEARTBEAT, versions=(0, 1), needs=NEEDS, on_error=on_error)
def handle(context: RequestContext, request: received.StreamsGroupHeartbeatRequest) -> Handling[Deferred]:
    check_enabled(context, "streams")
    authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    asked = yield from _asked(context, request)
    waiter = DeferredReply(lambda answer: _response(context, asked.group_id, answer))
    context.node.groups.ask(waiter, asked)
    return waiter.deferred


def _asked(
    context: RequestContext, request: received.StreamsGroupHeartbeatRequest
) -> Generator[int, None, StreamsHeartbeat]:
    """Raises KafkaError for a topology that the client may not have."""
    topology = None
    if request.topology is not None:
        yield from _check_names(context, request.topology)
        topology = yield from _topology(request.topology)
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout,
        topology=topology,
        owned=(
            (yield from _tasks(request.active_tasks)),
            (yield from _tasks(request.standby_tasks)),
            (yield from _tasks(request.warmup_tasks)),
        ),
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else StreamsEndpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else (yield from _in_steps(tags, lambda each: (each.key, each.value))),
        task_offsets=(yield from _offsets(request.task_offsets)),
        task_end_offsets=(yield from _offsets(request.task_end_offsets)),
        shuts_down=request.shutdown_application,
        is_version_1=context.api_version >= 1,
    )


def _check_size(topology: received.StreamsGroupHeartbeatRequestTopology) -> Generator[int, None, None]:
    """Raises STREAMS_INVALID_TOPOLOGY. What is counted is looked at by the coordinator in one piece, and kept."""
    items = 0
    for each in topology.subtopologies:
        internal = (*each.state_changelog_topics, *each.repartition_source_topics)
        items += 1 + len(each.source_topics) + len(each.source_topic_regex) + len(each.repartition_sink_topics)
        items += len(internal) + sum(len(topic.topic_configs) for topic in internal)
        for group in each.copartition_groups:
            items += 1 + len(group.source_topics) + len(group.source_topic_regex)
            items += len(group.repartition_source_topics)
        yield 1 + len(internal) + len(each.copartition_groups)
    if items > ITEMS_MAX:
        message = (
            f"The topology has {items} subtopologies, topics, settings of topics and copartition groups; the limit "
            f"is {ITEMS_MAX}."
        )
        raise KafkaError(ErrorCode.streams_invalid_topology, message)


def _check_names(
    context: RequestContext, topology: received.StreamsGroupHeartbeatRequestTopology
) -> Generator[int, None, None]:
    """Raises STREAMS_INVALID_TOPOLOGY for topics that no application may have, or too many of them; then
    TOPIC_AUTHORIZATION_FAILED for those that this one may not describe."""
    yield from _check_size(topology)
    names: dict[str, None] = {}
    for each in topology.subtopologies:
        of_one = [
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        ]
        names.update(dict.fromkeys(of_one))
        yield 1 + len(of_one)
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        message = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        raise KafkaError(ErrorCode.streams_invalid_topology, message)
    invalid = []
    for name in names:
        try:
            validate_topic_name(name)
        except KafkaError:
            invalid.append(name)
        yield 2
    if invalid:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
        raise KafkaError(ErrorCode.streams_invalid_topology, message)
    visible = allowed(context, Operation.DESCRIBE)
    for name in names:
        if name not in visible:
            raise refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        yield 2


def _in_steps(rows: Sequence[T], row_of: Callable[[T], R]) -> Generator[int, None, list[R]]:
    found: list[R] = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        found += map(row_of, rows[start : start + ROWS_AT_ONCE])
        yield 2 * ROWS_AT_ONCE
    return found


def _tasks(rows: Sequence[received.TaskIds] | None) -> Generator[int, None, TaskRows | None]:
    if rows is None:
        return None
    return (yield from _in_steps(rows, lambda each: (each.subtopology_id, each.partitions)))


def _offsets(rows: Sequence[received.TaskOffset] | None) -> Generator[int, None, TaskOffsets | None]:
    if rows is None:
        return None
    return (yield from _in_steps(rows, lambda each: (each.subtopology_id, each.partition, each.offset)))


def _topology(
    topology: received.StreamsGroupHeartbeatRequestTopology,
) -> Generator[int, None, StreamsGroupTopologyValue]:
    """The topology in the form of the group's record."""
    subtopologies = []
    for each in topology.subtopologies:
        changelogs = yield from _in_steps(each.state_changelog_topics, _topic)
        repartition = yield from _in_steps(each.repartition_source_topics, _topic)
        groups = yield from _in_steps(each.copartition_groups, _copartition_group)
        subtopologies.append(
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=tuple(each.source_topics),
                source_topic_regex=tuple(each.source_topic_regex),
                state_changelog_topics=tuple(changelogs),
                repartition_sink_topics=tuple(each.repartition_sink_topics),
                repartition_source_topics=tuple(repartition),
                copartition_groups=tuple(groups),
            )
        )
        yield 1
    return StreamsGroupTopologyValue(topology.epoch, tuple(subtopologies))


def _topic(topic: received.TopicInfo) -> TopicInfo:
    configs = tuple(TopicConfig(each.key, each.value) for each in topic.topic_configs)
    return TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _copartition_group(group: received.CopartitionGroup) -> CopartitionGroup:
    return CopartitionGroup(
        tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
    )


def _response(context: RequestContext, group_id: str, answer: _Answer) -> StreamsGroupHeartbeatResponse:
    """Has missing topics created, and says what became of it the last time."""
    creatable = answer.pop("creatable")
    if creatable:
        may_create = allowed(context, Operation.CREATE, on_cluster=Operation.CREATE)
        denied = [name for name in creatable if name not in may_create]
        if denied:
            answer["status"] = _with_denied(answer["status"], denied)
            return answer
        node = context.node
        interval_ms = node.groups.streams_heartbeat_interval_ms(group_id)
        requester = Requester(context.principal, context.client_host, context.client_id)
        topics = streams_topics(node)
        topics.create(creatable, requester, 2 * interval_ms)
        failures = topics.failures(creatable)
        if failures is not None:
            answer["status"] = [_with_failures(each, failures) for each in answer["status"] or ()]
    return answer


def _with_denied(statuses: Sequence[Status] | None, denied: Sequence[str]) -> list[Status]:
    """What keeps the application from running, with the topics that it may not create."""
    detail = f"Unauthorized to CREATE on topics {', '.join(denied)}."
    found: list[Status] = []
    is_named = False
    for each in statuses or ():
        if each["status_code"] == TopologyStatus.MISSING_INTERNAL_TOPICS and not is_named:
            each = {**each, "status_detail": f"{each['status_detail']}; {detail}"}
            is_named = True
        found.append(each)
    if not is_named:
        found.append({"status_code": TopologyStatus.MISSING_INTERNAL_TOPICS, "status_detail": detail})
    return found


def _with_failures(status: Status, failures: str) -> Status:
    if status["status_code"] != TopologyStatus.MISSING_INTERNAL_TOPICS:
        return status
    return {**status, "status_detail": f"{status['status_detail']}; Creation failed: {failures}."}
