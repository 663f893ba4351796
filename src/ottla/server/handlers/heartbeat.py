"""Heartbeat, versions 0-4: a member is alive; REBALANCE_IN_PROGRESS tells it to join again. Version 3 adds static
members (KIP-345). While its group is being loaded a member is told that all is well, so that it waits.
"""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api


@api(ApiKey.HEARTBEAT, versions=(0, 4))
def handle(context: RequestContext, request: Any) -> Response:
    instance_id = getattr(request, "group_instance_id", None)
    try:
        context.node.groups.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
    except KafkaError as error:
        if error.code is not ErrorCode.coordinator_load_in_progress:
            raise
    return {"error_code": ErrorCode.none}
