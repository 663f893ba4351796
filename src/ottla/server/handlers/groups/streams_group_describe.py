"""StreamsGroupDescribe, versions 0 and 1: state, epochs, topology and members of streams groups (KIP-1071), and since
version 1 the description of the topology, if it is asked for (KIP-1331)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.kinds import kind_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.topology_descriptions import nodes_of, topics_of
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import TopologyNode
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, Response, api
from ottla.server.connections.long_answers import RowsOf, row_by_row
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.handlers.groups.consumer_group_describe import check_topics
from ottla.server.handlers.groups.describe_groups import NOT_ASKED, operations_on
from ottla.server.security.authorization import authorize
from ottla.server.security.permissions import of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import StreamsGroupDescribeRequest
    from ottla.protocol.schemas.sent import (
        StreamsGroupDescribeResponse,
        StreamsGroupDescribeResponseDescribedGroup,
        StreamsGroupDescribeResponseTopology,
        TopologyDescriptionNode,
    )


def on_error(
    context: RequestContext, request: StreamsGroupDescribeRequest, error: KafkaError
) -> StreamsGroupDescribeResponse:
    return {"groups": RowsOf(request.group_ids, lambda group_id: _failed(group_id, error))}


NEEDS: Final = (of_groups(Operation.DESCRIBE, "group_ids"), of_topics(Operation.DESCRIBE, "groups.topology"))
NOT_STORED, FAILED, AVAILABLE = 1, 2, 3
"""Statuses of a description; 0 where it is not asked for."""
HIDDEN: Final = "The described group uses topics that the client is not authorized to describe."


@api(ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 1), needs=NEEDS, on_error=on_error)
def handle(context: RequestContext, request: StreamsGroupDescribeRequest) -> Response | Awaitable[Response]:
    check_enabled(context, "streams")
    return row_by_row("groups", request.group_ids, lambda group_id: _describe(context, request, group_id))


def _describe(
    context: RequestContext, request: StreamsGroupDescribeRequest, group_id: str
) -> StreamsGroupDescribeResponseDescribedGroup:
    describe = kind_of("streams").describe
    try:
        authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        found: StreamsGroupDescribeResponseDescribedGroup = context.node.groups.read_committed(describe, group_id)
        check_topics(context, _topics(found["topology"]), HIDDEN)
        if request.include_topology_description:
            found |= _description(context, group_id)
    except KafkaError as error:
        return _failed(group_id, error)
    operations = operations_on(context, group_id) if request.include_authorized_operations else NOT_ASKED
    return {"error_code": ErrorCode.none, "error_message": None, **found, "authorized_operations": operations}


def _description(context: RequestContext, group_id: str) -> StreamsGroupDescribeResponseDescribedGroup:
    """Raises TOPIC_AUTHORIZATION_FAILED for one with topics that the client may not describe: global ones, which no
    task reads, are not in the group's topology."""
    from ottla.coordinator.group.streams.describe import description_of  # for who has such groups

    try:
        found = context.node.groups.read_committed(description_of, group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.unknown_server_error:
            raise
        return {"topology_description_status": FAILED, "topology_description": None}
    if found is None:
        return {"topology_description_status": NOT_STORED, "topology_description": None}
    check_topics(context, [name for node in nodes_of(found) for name in topics_of(node)], HIDDEN)
    return {
        "topology_description_status": AVAILABLE,
        "topology_description": {
            "subtopologies": [
                {"subtopology_id": each.subtopology_id, "nodes": [_node(node) for node in each.nodes]}
                for each in found.subtopologies
            ],
            "global_stores": [
                {"source": _node(each.source), "processor": _node(each.processor)} for each in found.global_stores
            ],
        },
    }


def _node(node: TopologyNode) -> TopologyDescriptionNode:
    return {
        "name": node.name,
        "node_type": node.node_type,
        "source_topics": node.source_topics,
        "sink_topic": node.sink_topic,
        "stores": node.stores,
        "successors": node.successors,
    }


def _topics(topology: StreamsGroupDescribeResponseTopology | None) -> Iterable[str]:
    """The names of the topics that a topology names."""
    for each in () if topology is None else topology["subtopologies"] or ():
        yield from each["source_topics"]
        yield from each["repartition_sink_topics"]
        for topic in (*each["repartition_source_topics"], *each["state_changelog_topics"]):
            yield topic["name"]


def _failed(group_id: str, error: KafkaError) -> StreamsGroupDescribeResponseDescribedGroup:
    return {
        "error_code": error.code,
        "error_message": error.message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "topology": None,
        "members": (),
        "authorized_operations": NOT_ASKED,
    }
