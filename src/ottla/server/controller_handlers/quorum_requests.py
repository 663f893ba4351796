"""What requests of the metadata quorum have in common: whose log they are about, and who leads (`KafkaRaftClient`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.drivers.quorum.quorum_requests import VoterAnswer
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC, NodeId
from ottla.network import Address
from ottla.quorum.voters import ReplicaKey
from ottla.server.api import RequestContext
from ottla.server.metadata.forwarding import has_other_cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import (
        BeginQuorumEpochRequest,
        EndQuorumEpochRequest,
        LeaderEndpoint,
        VoteRequest,
    )
    from ottla.protocol.schemas.sent import (
        BeginQuorumEpochResponse,
        BeginQuorumEpochResponsePartitionData,
        FetchResponseNodeEndpoint,
        LeaderIdAndEpoch,
    )
    from ottla.server.ports import Controlled


def check_partition(
    context: RequestContext, request: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest
) -> None:
    """Raises KafkaError where a request is not about the partition of this cluster's metadata log, and it alone."""
    if has_other_cluster(context.node, request.cluster_id):
        raise KafkaError(ErrorCode.inconsistent_cluster_id)
    topics = request.topics
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.invalid_request)
    if topics[0].partitions[0].partition_index != 0:
        raise KafkaError(ErrorCode.invalid_request)


def leader_error(node: Controlled, epoch: int) -> ErrorCode:
    """The error of a request that is meant for the leader of `epoch`."""
    quorum = node.metadata.quorum
    if epoch < quorum.epoch:
        return ErrorCode.fenced_leader_epoch
    if epoch > quorum.epoch:
        return ErrorCode.unknown_leader_epoch
    return ErrorCode.none if quorum.serves else ErrorCode.not_leader_or_follower


def current_leader(node: Controlled) -> LeaderIdAndEpoch:
    return {"leader_id": node.metadata.quorum.leader_id, "leader_epoch": node.metadata.quorum.epoch}


def leader_endpoints(context: RequestContext) -> list[FetchResponseNodeEndpoint]:
    """Where the leader is reached by who came through this listener."""
    node = context.node
    leader_id = node.metadata.quorum.leader_id
    if leader_id == node.node_id:
        endpoint = node.controller_endpoints.get(context.listener_name)
    else:
        registration = node.image.controllers.get(leader_id)
        endpoint = None if registration is None else registration.endpoints.get(context.listener_name)
    return [] if endpoint is None else [{"node_id": leader_id, "host": endpoint.host, "port": endpoint.port}]


def voter_asked(voter_id: NodeId, directory_id: UUID) -> ReplicaKey | None:
    """The replica that a request is meant for; before KIP-853 it did not say."""
    return None if voter_id < 0 else ReplicaKey(voter_id, directory_id)


def named_endpoints(
    context: RequestContext, leader_id: NodeId, listeners: Iterable[LeaderEndpoint]
) -> dict[NodeId, Address]:
    """Where the node that says so itself can be reached, by who talks to controllers as this node does."""
    name = context.node.metadata.quorum.settings.listener
    found = next((each for each in listeners if each.name == name), None)
    return {} if found is None else {leader_id: Address(found.host, found.port)}


def voter_row(answer: VoterAnswer) -> BeginQuorumEpochResponsePartitionData:
    return {
        "partition_index": 0,
        "error_code": answer.error,
        "leader_id": answer.leader_id,
        "leader_epoch": answer.epoch,
    }


def voter_answer(context: RequestContext, answer: VoterAnswer) -> BeginQuorumEpochResponse:
    """The response to BeginQuorumEpoch or EndQuorumEpoch."""
    return {
        "error_code": ErrorCode.none,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [voter_row(answer)]}],
        "node_endpoints": leader_endpoints(context),
    }
