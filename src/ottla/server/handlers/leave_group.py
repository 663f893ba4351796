"""LeaveGroup, versions 0-5: members go without waiting for their session to time out.

From version 3 several at once, static ones by their instance id, each with its own error (KIP-345); before, one member
whose error is the response's. Version 5 adds a reason (KIP-800).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from ottla.coordinator.group.requests import Leaving
from ottla.protocol.messages import ROWS_PER_STEP, ApiKey
from ottla.server.api import Deferred, RequestContext, Response, api
from ottla.server.coordinator_replies import AwaitedReply, DeferredReply
from ottla.server.long_answers import encoded


@api(ApiKey.LEAVE_GROUP, versions=(0, 5))
def handle(context: RequestContext, request: Any) -> Deferred | Awaitable[Response]:
    if context.api_version >= 3:
        leaving = [Leaving(member.member_id, member.group_instance_id) for member in request.members]
        if len(leaving) > ROWS_PER_STEP:
            return _many(context, request.group_id, leaving)
        waiter = DeferredReply(lambda response: response)
    else:
        leaving = [Leaving(request.member_id)]
        waiter = DeferredReply(_of_one)
    context.node.groups.leave(waiter, request.group_id, leaving)
    return waiter.deferred


async def _many(context: RequestContext, group_id: str, leaving: list[Leaving]) -> Response:
    """They go at once, so that one rebalance follows; only the answer may take its time."""
    waiter = AwaitedReply()
    context.node.groups.leave(waiter, group_id, leaving)
    return await encoded(context, await waiter.result, "members")


def _of_one(response: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"error_code": response["members"][0]["error_code"]}
