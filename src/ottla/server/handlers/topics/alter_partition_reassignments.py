"""AlterPartitionReassignments, versions 0-1: move the replicas of partitions, or stop that (KIP-455; from 1 a client
can say that there are to be as many replicas as before, KIP-860)."""

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
    from ottla.protocol.schemas.received import AlterPartitionReassignmentsRequest, ReassignableTopic
    from ottla.protocol.schemas.sent import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )


def _on_error(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    row: ReassignablePartitionResponse = {"error_code": error.code, "error_message": error.message}

    def row_of(topic: ReassignableTopic) -> ReassignableTopicResponse:
        rows: list[ReassignablePartitionResponse] = [
            {"partition_index": each.partition_index, **row} for each in topic.partitions
        ]
        return {"name": topic.name, "partitions": rows}

    return {"error_code": error.code, "error_message": error.message, "responses": RowsOf(request.topics, row_of)}


@api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    needs=(cluster(Operation.ALTER, at_controller=True),),
    on_error=_on_error,
)
def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Awaitable[AlterPartitionReassignmentsResponse]:
    return forwarded(context, request)
