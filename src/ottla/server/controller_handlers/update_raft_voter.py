"""UpdateRaftVoter, version 0: a voter says where it is reached now (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_changes
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import KRaftVersionRange, Voter, VoterEndpoint
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.quorum_requests import leader_endpoints
from ottla.server.handlers.cluster.add_raft_voter import LISTENERS_MAX
from ottla.server.metadata.forwarding import has_other_cluster
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import UpdateRaftVoterRequest
    from ottla.protocol.schemas.sent import CurrentLeader, UpdateRaftVoterResponse


@api(ApiKey.UPDATE_RAFT_VOTER, versions=(0, 0), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    node = context.node
    if has_other_cluster(node, request.cluster_id):
        return _answer(context, ErrorCode.inconsistent_cluster_id)
    if len(request.listeners) > LISTENERS_MAX:
        return _answer(context, ErrorCode.invalid_request)
    quorum, levels = node.metadata.quorum, request.k_raft_version_feature
    new = Voter(
        request.voter_id,
        request.voter_directory_id or ZERO_UUID,
        tuple(VoterEndpoint(each.name, each.host, each.port) for each in request.listeners),
        KRaftVersionRange(levels.min_supported_version, levels.max_supported_version),
    )
    code = ErrorCode.none
    try:
        await quorum_changes.update(quorum, request.current_leader_epoch, new)
    except KafkaError as error:
        code = error.code
    return _answer(context, code)


def _answer(context: RequestContext, code: ErrorCode) -> UpdateRaftVoterResponse:
    quorum = context.node.metadata.quorum
    leader: CurrentLeader = {"leader_id": quorum.leader_id, "leader_epoch": quorum.epoch}
    for each in leader_endpoints(context):
        leader["host"], leader["port"] = each["host"], each["port"]
    return {"error_code": code, "current_leader": leader}
