"""JoinGroup, versions 0-9: become a member, or take part in a rebalance; answered when everyone has joined.

Version 1 adds the rebalance timeout (KIP-62), 4 the two-step join (KIP-394), 5 static members (KIP-345), 9 that a
returning static leader skips the assignment (KIP-814). See `coordinator/group/join.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.coordinator.group import replies
from ottla.coordinator.group.requests import JoinGroup
from ottla.errors import KafkaError
from ottla.protocol.group_responses import encode_join
from ottla.protocol.messages import ApiKey, millis, response_header
from ottla.server.api import Deferred, EncodedResponse, RequestContext, Response, api
from ottla.server.coordinator_replies import DeferredReply


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return _encoded(context, replies.join_error(error.code))


@api(ApiKey.JOIN_GROUP, versions=(0, 9), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Deferred:
    session_timeout_ms = millis(request.session_timeout)
    asked = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=millis(request.rebalance_timeout) if context.api_version else session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols={protocol.name: protocol.metadata for protocol in request.protocols},
        require_known_member_id=context.api_version >= 4,
        can_skip_assignment=context.api_version >= 9,
    )
    waiter = DeferredReply(lambda response: _answer(context, response))
    context.node.groups.join(waiter, asked)
    return waiter.deferred


def _answer(context: RequestContext, response: Mapping[str, Any]) -> EncodedResponse:
    if response["error_code"]:
        context.count_error(response["error_code"])
    return _encoded(context, response)


def _encoded(context: RequestContext, response: Mapping[str, Any]) -> EncodedResponse:
    header = response_header(ApiKey.JOIN_GROUP, context.api_version, context.correlation_id)
    return EncodedResponse([encode_join(context.api_version, response, header)])
