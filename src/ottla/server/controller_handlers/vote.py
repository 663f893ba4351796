"""Vote, versions 0-2: a candidate asks to be elected (KIP-595; directory ids since 1, pre-votes since 2, KIP-996)."""

from __future__ import annotations

from typing import Any

from ottla.drivers import quorum_requests
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.quorum.election import LogEnd
from ottla.quorum.voters import ReplicaKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, Response, api
from ottla.server.controller_handlers.quorum_requests import asked_partition, voter_answer, voter_asked
from ottla.server.permissions import cluster


@api(ApiKey.VOTE, versions=(0, 2), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: Any) -> Response:
    partition = asked_partition(context, request)
    candidate = ReplicaKey(partition.replica_id, getattr(partition, "replica_directory_id", None) or ZERO_UUID)
    answer = await quorum_requests.vote(
        context.node.metadata.quorum,
        candidate,
        partition.replica_epoch,
        LogEnd(partition.last_offset_epoch, partition.last_offset),
        pre_vote=getattr(partition, "pre_vote", False),
        voter=voter_asked(request, partition),
    )
    return voter_answer(context, answer, vote_granted=answer.granted)
