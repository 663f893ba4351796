"""Vote, versions 0-2: a candidate asks to be elected (KIP-595; directory ids since 1, pre-votes since 2, KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_requests
from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.quorum.election import LogEnd
from ottla.quorum.voters import ReplicaKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.quorum_requests import check_partition, leader_endpoints, voter_asked, voter_row
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import VoteRequest
    from ottla.protocol.schemas.sent import VoteResponse


@api(ApiKey.VOTE, versions=(0, 2), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: VoteRequest) -> VoteResponse:
    check_partition(context, request)
    partition = request.topics[0].partitions[0]
    candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
    answer = await quorum_requests.vote(
        context.node.metadata.quorum,
        candidate,
        partition.replica_epoch,
        LogEnd(partition.last_offset_epoch, partition.last_offset),
        pre_vote=partition.pre_vote,
        voter=voter_asked(request.voter_id, partition.voter_directory_id),
    )
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "topic_name": METADATA_TOPIC,
                "partitions": [{**voter_row(answer), "vote_granted": answer.granted}],
            }
        ],
        "node_endpoints": leader_endpoints(context),
    }
