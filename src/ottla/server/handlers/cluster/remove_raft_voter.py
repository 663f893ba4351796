"""RemoveRaftVoter, version 0: a controller is to vote no more (KIP-853)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_changes
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.handlers.cluster.add_raft_voter import asked_voter
from ottla.server.metadata.forwarding import forwarded, forwards_quorum_request
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import RemoveRaftVoterRequest
    from ottla.protocol.schemas.sent import RemoveRaftVoterResponse


@api(ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), needs=(cluster(Operation.ALTER, at_controller=True),))
def handle(context: RequestContext, request: RemoveRaftVoterRequest) -> Awaitable[RemoveRaftVoterResponse]:
    if forwards_quorum_request(context):
        return forwarded(context, request)
    return _change(context, request)


async def _change(context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    node = context.node
    await quorum_changes.remove(node.metadata.quorum, asked_voter(node, request, "Remove"))
    if node.audit is not None:
        node.audit.administered(context, "VOTER", str(request.voter_id))
    return {"error_code": ErrorCode.none, "error_message": None}
