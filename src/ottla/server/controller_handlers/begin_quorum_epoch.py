"""BeginQuorumEpoch, versions 0-1: another voter says that it leads (KIP-595; endpoints and directories since 1)."""

from __future__ import annotations

from typing import Any

from ottla.drivers import quorum_requests
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, Response, api
from ottla.server.controller_handlers.quorum_requests import asked_partition, named_endpoints, voter_answer, voter_asked
from ottla.server.permissions import cluster


@api(ApiKey.BEGIN_QUORUM_EPOCH, versions=(0, 1), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: Any) -> Response:
    partition = asked_partition(context, request)
    answer = await quorum_requests.begin_epoch(
        context.node.metadata.quorum,
        partition.leader_id,
        partition.leader_epoch,
        named_endpoints(context, partition.leader_id, getattr(request, "leader_endpoints", ())),
        voter_asked(request, partition),
    )
    return voter_answer(context, answer)
