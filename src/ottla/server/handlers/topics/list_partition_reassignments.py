"""ListPartitionReassignments, version 0: which replicas are on their way (KIP-455)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics
    from ottla.protocol.schemas.sent import ListPartitionReassignmentsResponse, OngoingTopicReassignment


def _on_error(
    context: RequestContext, request: ListPartitionReassignmentsRequest, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    def row_of(topic: ListPartitionReassignmentsTopics) -> OngoingTopicReassignment:
        return {"name": topic.name, "partitions": [{"partition_index": number} for number in topic.partition_indexes]}

    rows = RowsOf(request.topics or (), row_of)
    return {"error_code": error.code, "error_message": error.message, "topics": rows}


@api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    needs=(cluster(Operation.DESCRIBE, at_controller=True),),
    on_error=_on_error,
)
def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Awaitable[ListPartitionReassignmentsResponse]:
    return forwarded(context, request)
