"""DescribeQuorum, versions 0-2: who leads the metadata quorum and how far its replicas are (KIP-595, 836, 853).

Only the leader knows: who is asked by clients and is not the leader asks it; who is asked as a controller says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.quorum.leader import Replica
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import forwarded, forwards_quorum_request
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeQuorumRequest
    from ottla.protocol.schemas.sent import (
        DescribeQuorumResponse,
        DescribeQuorumResponsePartitionData,
        DescribeQuorumResponseReplicaState,
        DescribeQuorumResponseTopicData,
        Node,
    )

NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader."
)
NOTHING_KNOWN: DescribeQuorumResponsePartitionData = {"leader_id": 0, "leader_epoch": 0, "high_watermark": 0}


@api(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), needs=(cluster(Operation.DESCRIBE, at_controller=True),))
def handle(
    context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse | Awaitable[DescribeQuorumResponse]:
    if forwards_quorum_request(context):
        return _asked_of_leader(context, request)
    return _described(context, request)


async def _asked_of_leader(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    try:
        answer: DescribeQuorumResponse = await forwarded(context, request)
        return answer
    except KafkaError:
        if not context.node.metadata.quorum.is_leader:  # it has become that meanwhile
            raise
    return _described(context, request)


def _described(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    node = context.node
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if not asked:
        return _answer(())
    if asked != [(METADATA_TOPIC, [0])]:
        return _answer(_unknown(asked))
    if not node.metadata.quorum.is_leader:
        refused: DescribeQuorumResponsePartitionData = {
            "partition_index": 0,
            "error_code": ErrorCode.not_leader_or_follower,
            "error_message": NOT_LEADER,
            **NOTHING_KNOWN,
        }
        return _answer([{"topic_name": METADATA_TOPIC, "partitions": [refused]}])
    info = node.metadata.quorum.info()
    partition: DescribeQuorumResponsePartitionData = {
        "partition_index": 0,
        "error_code": ErrorCode.none,
        "error_message": "",
        "leader_id": info.leader_id,
        "leader_epoch": info.leader_epoch,
        "high_watermark": info.high_watermark,
        "current_voters": [_replica(each) for each in info.voters],
        "observers": [_replica(each) for each in info.observers],
    }
    nodes: list[Node] = [
        {
            "node_id": node_id,
            "listeners": [{"name": name, "host": end.host, "port": end.port} for name, end in endpoints.items()],
        }
        for node_id, endpoints in ((each.id, each.endpoints) for each in node.image.controllers.values())
    ]
    return _answer([{"topic_name": METADATA_TOPIC, "partitions": [partition]}], nodes)


def _answer(topics: Sequence[DescribeQuorumResponseTopicData], nodes: Sequence[Node] = ()) -> DescribeQuorumResponse:
    return {"error_code": ErrorCode.none, "error_message": "", "topics": topics, "nodes": nodes}


def _replica(replica: Replica) -> DescribeQuorumResponseReplicaState:
    return {
        "replica_id": replica.key.node_id,
        "replica_directory_id": replica.key.directory_id,
        "log_end_offset": replica.end_offset,
        "last_fetch_timestamp": replica.last_fetch_ms,
        "last_caught_up_timestamp": replica.last_caught_up_ms,
    }


def _unknown(asked: list[tuple[str, list[int]]]) -> list[DescribeQuorumResponseTopicData]:
    """Kafka answers so for every partition when the request names anything but the metadata partition alone."""
    row: DescribeQuorumResponsePartitionData = {
        "error_code": ErrorCode.unknown_topic_or_partition,
        "error_message": "This server does not host this topic-partition.",
        **NOTHING_KNOWN,
    }
    return [
        {"topic_name": name, "partitions": [{"partition_index": n, **row} for n in numbers]} for name, numbers in asked
    ]
