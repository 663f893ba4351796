"""ShareGroupHeartbeat, version 1: a member of a share group joins, stays, changes what it reads, or leaves (KIP-932).

It learns from the answer which partitions it has. See `coordinator/group/share/heartbeat.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, TypedDict
from uuid import UUID

from ottla.coordinator.group.requests import ShareHeartbeat
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import Deferred, RequestContext, api
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.coordinators.share_groups import MEMBER_ID_LENGTH_MAX
from ottla.server.handlers.groups.consumer_group_heartbeat import check_subscription
from ottla.server.security.authorization import authorize
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ShareGroupHeartbeatRequest
    from ottla.protocol.schemas.sent import ShareGroupHeartbeatResponse

    class _Answer(TypedDict):
        """What the coordinator says."""

        error_code: ErrorCode
        error_message: str | None
        member_id: str
        member_epoch: int
        heartbeat_interval: int
        assignment: Mapping[UUID, Collection[int]] | None


def _on_error(
    context: RequestContext, request: ShareGroupHeartbeatRequest, error: KafkaError
) -> ShareGroupHeartbeatResponse:
    return {"error_code": error.code, "error_message": error.message or None, "member_id": None, "assignment": None}


NEEDS: Final = (
    of_groups(Operation.READ, "group_id", refused=Refused.REQUEST),
    of_topics(Operation.DESCRIBE, "subscribed_topic_names", refused=Refused.REQUEST),
)


@api(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1), needs=NEEDS, on_error=_on_error)
def handle(context: RequestContext, request: ShareGroupHeartbeatRequest) -> Deferred:
    check_enabled(context, "share")
    authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    if not request.member_id or len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.invalid_request)
    check_subscription(context, request.subscribed_topic_names)
    asked = ShareHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        context.client_id or "",
        f"/{context.client_host}",
        None if request.subscribed_topic_names is None else list(request.subscribed_topic_names),
    )
    waiter = DeferredReply(_response)
    context.node.share.groups.heartbeat(waiter, asked)
    return waiter.deferred


def _response(answer: _Answer) -> ShareGroupHeartbeatResponse:
    assigned = answer["assignment"]
    return {
        "error_code": answer["error_code"],
        "error_message": answer["error_message"],
        "member_id": answer["member_id"],
        "member_epoch": answer["member_epoch"],
        "heartbeat_interval": answer["heartbeat_interval"],
        "assignment": None
        if assigned is None
        else {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": tuple(sorted(numbers))} for topic_id, numbers in assigned.items()
            ]
        },
    }
