"""Fetch at a controller, versions 4-18: the metadata log, for the brokers and voters that follow it (KIP-595, KIP-630).

A follower says the epoch of its last record, and is told where to truncate if its log went another way, or which
snapshot to fetch if the log begins behind its end. An answer without records waits for some, or for the high watermark
to move beyond what the follower knows (version 18, KIP-1166), as long as the follower allows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.drivers.quorum import quorum_requests
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol.messages import ApiKey
from ottla.quorum.voters import ReplicaKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.quorum_requests import (
    current_leader,
    leader_endpoints,
)
from ottla.server.metadata.forwarding import has_other_cluster
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.drivers.quorum.quorum_node import QuorumNode
    from ottla.drivers.quorum.quorum_requests import QuorumFetch
    from ottla.protocol.schemas.received import FetchRequest, FetchRequestFetchPartition
    from ottla.protocol.schemas.sent import (
        FetchableTopicResponse,
        FetchResponse,
        FetchResponsePartitionData,
    )

FETCH_BYTES_MAX = 8 << 20
"""Bytes of the log in one answer, at least a batch: the maximum of a batch of the metadata log."""


def on_error(context: RequestContext, request: FetchRequest, error: KafkaError) -> FetchResponse:
    """Versions before 13 have the error at every partition too."""
    if context.api_version >= 13:
        return {"error_code": error.code, "responses": ()}
    rows: list[FetchableTopicResponse] = [
        {"topic": topic.topic, "partitions": [_failed(each.partition, error.code) for each in topic.partitions]}
        for topic in request.topics
    ]
    return {"error_code": error.code, "responses": rows}


def _failed(number: int, code: ErrorCode) -> FetchResponsePartitionData:
    return {"partition_index": number, "error_code": code, "high_watermark": -1, "records": b""}


@api(ApiKey.FETCH, versions=(4, 18), needs=(cluster(Operation.CLUSTER_ACTION),), on_error=on_error)
async def handle(context: RequestContext, request: FetchRequest) -> FetchResponse:
    node = context.node
    if has_other_cluster(node, request.cluster_id):
        return {"error_code": ErrorCode.inconsistent_cluster_id}
    asked = _metadata_partition(request)
    if asked is None:
        return {"error_code": ErrorCode.invalid_request}
    epoch = asked.current_leader_epoch
    last_epoch = asked.last_fetched_epoch
    max_wait_ms = request.max_wait
    if max_wait_ms < 0 or asked.fetch_offset < 0 or not 0 <= last_epoch <= epoch:
        return _response(context, request, ErrorCode.invalid_request)
    quorum, loop = node.metadata.quorum, asyncio.get_running_loop()
    deadline = loop.time() + max_wait_ms / 1000
    known = asked.high_watermark
    while True:
        try:
            await quorum.persisted()
            found = quorum_requests.fetch(
                quorum, _replica(request, asked), epoch, asked.fetch_offset, last_epoch, FETCH_BYTES_MAX
            )
        except KafkaError as error:
            return _response(context, request, error.code)
        is_news = found.records is not None or found.diverging is not None or found.snapshot is not None
        left_s = deadline - loop.time()
        if is_news or found.high_watermark > known or left_s <= 0 or node.stopping:
            return _response(context, request, ErrorCode.none, found)
        await _news(quorum, left_s)


async def _news(quorum: QuorumNode, seconds_max: float) -> None:
    """Returns when the end of the log or the high watermark has moved, or the time is over."""
    moved = asyncio.Event()
    quorum.on_append.append(moved.set)
    try:
        async with asyncio.timeout(seconds_max):
            await moved.wait()
    except TimeoutError:
        pass
    finally:
        quorum.on_append.remove(moved.set)


def _metadata_partition(request: FetchRequest) -> FetchRequestFetchPartition | None:
    """The part of a request that is about the metadata log; None if it is about anything else too."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    is_it = topic.topic_id == METADATA_TOPIC_ID or topic.topic == METADATA_TOPIC
    partition = topic.partitions[0]
    return partition if is_it and partition.partition == 0 else None


def _replica(request: FetchRequest, asked: FetchRequestFetchPartition) -> ReplicaKey:
    replica_id = request.replica_state.replica_id if request.replica_id < 0 else request.replica_id
    return ReplicaKey(replica_id, asked.replica_directory_id)


def _response(
    context: RequestContext, request: FetchRequest, error: ErrorCode, found: QuorumFetch | None = None
) -> FetchResponse:
    row: FetchResponsePartitionData = {
        "partition_index": 0,
        "error_code": error,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": context.node.metadata.quorum.log.log.log_start_offset,
        "aborted_transactions": (),
        "records": b"",
        "current_leader": current_leader(context.node),
    }
    if found is not None:
        row["high_watermark"], row["log_start_offset"] = found.high_watermark, found.log_start_offset
        if found.diverging is not None:
            diverging_epoch, end_offset = found.diverging
            row["diverging_epoch"] = {"epoch": diverging_epoch, "end_offset": end_offset}
        elif found.snapshot is not None:
            row["snapshot_id"] = {"end_offset": found.snapshot.end_offset, "epoch": found.snapshot.epoch}
        elif found.records is not None:
            row["records"] = found.records.read()
    topic: FetchableTopicResponse = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": [row]}
    return {"error_code": ErrorCode.none, "responses": [topic], "node_endpoints": leader_endpoints(context)}
