"""StreamsGroupTopologyDescriptionUpdate, version 0: a member of a streams group describes its application's topology
(KIP-1331), which an answer to its heartbeat has asked it for.

In Kafka a plug-in takes it; here it is kept with the group (`coordinator/group/streams/descriptions.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.requests import StreamsDescription
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.topology_descriptions import PROCESSOR, SINK, SOURCE, encode_description, nodes_of
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import DescribedSubtopology, GlobalStore, TopologyDescription, TopologyNode
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import Deferred, Handling, RequestContext, api
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.security.authorization import authorize
from ottla.server.security.permissions import Refused, of_groups

if TYPE_CHECKING:
    from ottla.protocol.schemas import received
    from ottla.protocol.schemas.sent import StreamsGroupTopologyDescriptionUpdateResponse

NEEDS: Final = (of_groups(Operation.READ, "group_id", refused=Refused.REQUEST),)


class _Wrong(Exception):
    """It is no description; the message says why."""


def on_error(
    context: RequestContext, request: received.StreamsGroupTopologyDescriptionUpdateRequest, error: KafkaError
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    message = None if error.code is ErrorCode.unknown_server_error else error.message
    return {"error_code": error.code, "error_message": message}


@api(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, versions=(0, 0), needs=NEEDS, on_error=on_error)
def handle(
    context: RequestContext, request: received.StreamsGroupTopologyDescriptionUpdateRequest
) -> Handling[Deferred]:
    check_enabled(context, "streams")
    authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    wrong, description = None, TopologyDescription()
    try:
        description = yield from _description(request.topology_description)
    except _Wrong as error:
        wrong = str(error)
    items = 0
    for node in nodes_of(description):
        items += 1 + len(node.source_topics) + len(node.stores) + len(node.successors)
        yield 1
    asked = StreamsDescription(
        request.group_id, request.member_id, request.topology_epoch, encode_description(description), items, wrong
    )
    waiter = DeferredReply(lambda answer: answer)
    context.node.groups.ask(waiter, asked)
    return waiter.deferred


def _description(given: received.TopologyDescription) -> Generator[int, None, TopologyDescription]:
    """What a plug-in of Kafka's would be given. Raises _Wrong."""
    subtopologies = []
    for each in given.subtopologies:
        nodes = []
        for node in each.nodes:
            nodes.append(_node(node))
            yield _cost(node)
        subtopologies.append(DescribedSubtopology(each.subtopology_id, tuple(nodes)))
        yield 1
    stores = []
    for store in given.global_stores:
        source, processor = _node(store.source), _node(store.processor)
        if (source.node_type, processor.node_type) != (SOURCE, PROCESSOR):
            raise _Wrong("Global store must be composed of a source and a processor node.")
        stores.append(GlobalStore(source, processor))
        yield _cost(store.source) + _cost(store.processor)
    return TopologyDescription(tuple(subtopologies), tuple(stores))


def _cost(node: received.TopologyDescriptionNode) -> int:
    return 2 + len(node.source_topics) + len(node.stores) + len(node.successors)


def _node(node: received.TopologyDescriptionNode) -> TopologyNode:
    """A node with what nodes of its type have, and no name twice."""
    kind = node.node_type
    if kind not in (SOURCE, PROCESSOR, SINK):
        raise _Wrong(f"Unknown topology node type: {kind}")
    return TopologyNode(
        node.name,
        kind,
        _once(node.source_topics if kind == SOURCE else ()),
        node.sink_topic if kind == SINK else None,
        _once(node.stores if kind == PROCESSOR else ()),
        _once(node.successors),
    )


def _once(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
