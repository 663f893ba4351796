"""ShareAcknowledge, versions 1-2: a member of a share group says what became of the records that it has (KIP-932).

Answered when the share coordinator has kept it. Version 2 lets a member renew its locks (KIP-1222). The last request of
a session (epoch -1) gives back what the member still has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.replication.share.session import FINAL_EPOCH, SharedPartition
from ottla.server.api import RequestContext, api
from ottla.server.coordinators.share_groups import (
    NEEDS,
    NO_LEADER_KNOWN,
    Acknowledging,
    by_topic,
    check_request,
    leaders,
)

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ShareAcknowledgeRequest
    from ottla.protocol.schemas.sent import ShareAcknowledgeResponse, ShareAcknowledgeResponsePartitionData


def _on_error(context: RequestContext, request: ShareAcknowledgeRequest, error: KafkaError) -> ShareAcknowledgeResponse:
    return {"error_code": error.code}


@api(ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2), needs=NEEDS, on_error=_on_error)
async def handle(context: RequestContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    key = check_request(context, request)
    manager = context.node.share.partitions
    manager.sessions.acknowledge(key, request.share_session_epoch)
    failures = await Acknowledging(context, request, key).result()
    if request.share_session_epoch == FINAL_EPOCH:
        manager.end_session(key)
    errors = {where: ErrorCode.none if error is None else error.code for where, error in failures.items()}
    known, endpoints = leaders(context, errors.items())
    rows: dict[SharedPartition, ShareAcknowledgeResponsePartitionData] = {
        where: {
            "partition_index": where.partition,
            "error_code": errors[where],
            "error_message": error.message or None if error is not None else None,
            "current_leader": known.get(where, NO_LEADER_KNOWN),
        }
        for where, error in failures.items()
    }
    return {
        "error_code": ErrorCode.none,
        "acquisition_lock_timeout": manager.config_of(key.group_id).record_lock_duration_ms,
        "responses": [{"topic_id": topic_id, "partitions": some} for topic_id, some in by_topic(rows).items()],
        "node_endpoints": endpoints,
    }
