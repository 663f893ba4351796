"""AddRaftVoter, versions 0-1: a controller that follows the quorum is to vote in it (KIP-853, KIP-1186)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_changes
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import VoterEndpoint
from ottla.quorum.voters import ReplicaKey, voter
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import forwarded, forwards_quorum_request, has_other_cluster
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AddRaftVoterRequest, RemoveRaftVoterRequest
    from ottla.protocol.schemas.sent import AddRaftVoterResponse
    from ottla.server.ports import Member

LISTENERS_MAX = 100
"""Listeners of a controller; each is stored in the log and read by all nodes."""


def asked_voter(node: Member, request: AddRaftVoterRequest | RemoveRaftVoterRequest, word: str) -> ReplicaKey:
    """The replica that a request to change the voters is about. Raises KafkaError."""
    if has_other_cluster(node, request.cluster_id):
        what = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{node.cluster_id}"'
        raise KafkaError(ErrorCode.inconsistent_cluster_id, what)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise KafkaError(ErrorCode.invalid_request, f"{word} voter request didn't include a valid voter")
    return ReplicaKey(request.voter_id, request.voter_directory_id)


@api(ApiKey.ADD_RAFT_VOTER, versions=(0, 1), needs=(cluster(Operation.ALTER, at_controller=True),))
def handle(context: RequestContext, request: AddRaftVoterRequest) -> Awaitable[AddRaftVoterResponse]:
    if forwards_quorum_request(context):
        return forwarded(context, request)
    return _change(context, request)


async def _change(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    node = context.node
    key = asked_voter(node, request, "Add")
    if len(request.listeners) > LISTENERS_MAX:
        raise KafkaError(ErrorCode.invalid_request, f"a voter has at most {LISTENERS_MAX} listeners")
    endpoints = [VoterEndpoint(each.name, each.host, each.port) for each in request.listeners]
    new = voter(key, endpoints)
    quorum, wait = node.metadata.quorum, request.ack_when_committed
    if quorum.settings.listener not in {each.name for each in endpoints}:
        what = f"the voter has no listener {quorum.settings.listener}, which controllers are reached at"
        raise KafkaError(ErrorCode.invalid_request, what)
    await quorum_changes.add(quorum, new, request.timeout, wait=wait)
    if node.audit is not None:
        node.audit.administered(context, "VOTER", str(request.voter_id))
    return {"error_code": ErrorCode.none, "error_message": None}
