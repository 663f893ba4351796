"""BeginQuorumEpoch, versions 0-1: another voter says that it leads (KIP-595; endpoints and directories since 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_requests
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.quorum_requests import check_partition, named_endpoints, voter_answer, voter_asked
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import BeginQuorumEpochRequest
    from ottla.protocol.schemas.sent import BeginQuorumEpochResponse


@api(ApiKey.BEGIN_QUORUM_EPOCH, versions=(0, 1), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    check_partition(context, request)
    partition = request.topics[0].partitions[0]
    answer = await quorum_requests.begin_epoch(
        context.node.metadata.quorum,
        partition.leader_id,
        partition.leader_epoch,
        named_endpoints(context, partition.leader_id, request.leader_endpoints),
        voter_asked(request.voter_id, partition.voter_directory_id),
    )
    return voter_answer(context, answer)
