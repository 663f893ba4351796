"""ConsumerGroupHeartbeat, versions 0-1: a member of a consumer group joins, stays, changes what it reads, or leaves
(KIP-848). It learns from the answer which partitions it has.

Version 1 adds regular expressions, and has the client make the member id (KIP-1082). See
`coordinator/group/consumer/heartbeat.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ottla.coordinator.group.requests import ConsumerHeartbeat
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import GROUP_VERSION
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey, millis
from ottla.server.api import Deferred, RequestContext, Response, api
from ottla.server.coordinator_replies import DeferredReply


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {
        "error_code": error.code, "error_message": error.message, "member_id": None, "member_epoch": 0,
        "heartbeat_interval": 0, "assignment": None,
    }  # fmt: skip


@api(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Deferred:
    check_enabled(context)
    owned: dict[UUID, frozenset[int]] | None = None
    if request.topic_partitions is not None:
        owned = {each.topic_id or ZERO_UUID: frozenset(each.partitions) for each in request.topic_partitions}
    asked = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=millis(request.rebalance_timeout),
        topics=request.subscribed_topic_names,
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=owned,
        needs_member_id=context.api_version >= 1,
    )
    waiter = DeferredReply(_response)
    context.node.groups.consumer_heartbeat(waiter, asked)
    return waiter.deferred


def check_enabled(context: RequestContext) -> None:
    """Raises UNSUPPORTED_VERSION where the cluster or the node does not serve these groups."""
    protocols = context.node.config["group.coordinator.rebalance.protocols"]
    if not context.node.image.features.get(GROUP_VERSION) or "consumer" not in protocols:
        raise KafkaError(ErrorCode.unsupported_version)


def _response(answer: Mapping[str, Any]) -> Response:
    assigned = answer["assignment"]
    rows = None
    if assigned is not None:
        rows = tuple({"topic_id": topic_id, "partitions": tuple(found)} for topic_id, found in assigned.items())
    return {**answer, "error_message": None, "assignment": None if rows is None else {"topic_partitions": rows}}
