"""FetchSnapshot, versions 0-1: a piece of a snapshot of the metadata, for who is behind the log (KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_requests
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.quorum.snapshot import SnapshotId
from ottla.quorum.voters import ReplicaKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.quorum_requests import (
    current_leader,
    leader_endpoints,
    leader_error,
)
from ottla.server.metadata.forwarding import has_other_cluster
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import FetchSnapshotRequest
    from ottla.protocol.schemas.sent import FetchSnapshotResponse, FetchSnapshotResponsePartitionSnapshot

PIECE_BYTES_MAX = 8 << 20
"""A larger answer would keep the loop from other work."""


@api(ApiKey.FETCH_SNAPSHOT, versions=(0, 1), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    node = context.node
    if has_other_cluster(node, request.cluster_id):
        return {"error_code": ErrorCode.inconsistent_cluster_id}
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return {"error_code": ErrorCode.invalid_request}
    topic = request.topics[0]
    asked = topic.partitions[0]
    row: FetchSnapshotResponsePartitionSnapshot = {
        "index": asked.partition,
        "snapshot_id": {"end_offset": 0, "epoch": 0},
        "current_leader": current_leader(node),
        "unaligned_records": b"",
    }
    if (topic.name, asked.partition) != (METADATA_TOPIC, 0):
        row["error_code"] = ErrorCode.unknown_topic_or_partition
    elif error := leader_error(node, asked.current_leader_epoch):
        row["error_code"] = error
    else:
        wanted = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        try:
            size_max = min(request.max_bytes, PIECE_BYTES_MAX)
            quorum = node.metadata.quorum
            await quorum.persisted()
            replica = ReplicaKey(request.replica_id, asked.replica_directory_id)
            data, size = await quorum_requests.read_snapshot(quorum, replica, wanted, asked.position, size_max)
        except KafkaError as refused:
            row["error_code"] = refused.code
        else:
            row["snapshot_id"] = {"end_offset": wanted.end_offset, "epoch": wanted.epoch}
            row["size"], row["position"], row["unaligned_records"] = size, asked.position, data
    return {
        "error_code": ErrorCode.none,
        "topics": [{"name": topic.name, "partitions": [row]}],
        "node_endpoints": leader_endpoints(context),
    }
