"""JoinGroup, versions 0-9: become a member, or take part in a rebalance; answered when everyone has joined.

Version 1 adds the rebalance time-out (KIP-62), 4 the two-step join (KIP-394), 5 static members (KIP-345), 9 that a
returning static leader skips the assignment (KIP-814). See `coordinator/group/join.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.coordinator.group import replies
from ottla.coordinator.group.requests import JoinGroup
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey, millis
from ottla.server.api import Deferred, RequestContext, Response, api
from ottla.server.waiting import Finishing


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return _for_version(context, replies.join_error(error.code))


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
    waiter = Finishing(lambda response: _for_version(context, response))
    context.node.groups.join(waiter, asked)
    return waiter.deferred


def _for_version(context: RequestContext, response: Mapping[str, Any]) -> Mapping[str, Any]:
    """Before version 7 no protocol is an empty name."""
    if context.api_version < 7 and response["protocol_name"] is None:
        return {**response, "protocol_name": ""}
    return response
