"""EndQuorumEpoch, versions 0-1: a leader gives its epoch up (KIP-595; endpoints and directories since 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_requests
from ottla.protocol.messages import ApiKey
from ottla.quorum.voters import ReplicaKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.quorum_requests import check_partition, named_endpoints, voter_answer
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import EndQuorumEpochRequest
    from ottla.protocol.schemas.sent import EndQuorumEpochResponse


@api(ApiKey.END_QUORUM_EPOCH, versions=(0, 1), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    check_partition(context, request)
    partition = request.topics[0].partitions[0]
    successors = [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    successors += [ReplicaKey(node_id) for node_id in partition.preferred_successors]  # version 0
    answer = await quorum_requests.end_epoch(
        context.node.metadata.quorum,
        partition.leader_id,
        partition.leader_epoch,
        named_endpoints(context, partition.leader_id, request.leader_endpoints),
        successors,
    )
    return voter_answer(context, answer)
