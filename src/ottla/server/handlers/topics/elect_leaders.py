"""ElectLeaders, versions 0-2: preferred leaders again, or (from 1) unclean ones, of some partitions or of all that need
it (KIP-183, KIP-460)."""

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
    from ottla.protocol.schemas.received import ElectLeadersRequest, ElectLeadersRequestTopicPartitions
    from ottla.protocol.schemas.sent import (
        ElectLeadersResponse,
        ElectLeadersResponsePartitionResult,
        ReplicaElectionResult,
    )


def _on_error(context: RequestContext, request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    row: ElectLeadersResponsePartitionResult = {"error_code": error.code, "error_message": error.message}

    def row_of(topic: ElectLeadersRequestTopicPartitions) -> ReplicaElectionResult:
        return {"topic": topic.topic, "partition_result": [{"partition_id": n, **row} for n in topic.partitions]}

    return {
        "error_code": error.code,
        "replica_election_results": RowsOf(request.topic_partitions or (), row_of),
    }


@api(ApiKey.ELECT_LEADERS, versions=(0, 2), needs=(cluster(Operation.ALTER, at_controller=True),), on_error=_on_error)
def handle(context: RequestContext, request: ElectLeadersRequest) -> Awaitable[ElectLeadersResponse]:
    return forwarded(context, request)
