"""LeaveGroup, versions 0-5: members go without waiting for their session to time out.

From version 3 several at once, static ones by their instance id, each with its own error (KIP-345); before, one member
whose error is the response's. Version 5 adds a reason (KIP-800).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.coordinator.group.requests import Leaving
from ottla.protocol.messages import ApiKey
from ottla.server.api import Deferred, RequestContext, api
from ottla.server.waiting import Finishing


@api(ApiKey.LEAVE_GROUP, versions=(0, 5))
def handle(context: RequestContext, request: Any) -> Deferred:
    if context.api_version >= 3:
        leaving = [Leaving(member.member_id, member.group_instance_id) for member in request.members]
        waiter = Finishing(lambda response: response)
    else:
        leaving = [Leaving(request.member_id)]
        waiter = Finishing(_of_one)
    context.node.groups.leave(waiter, request.group_id, leaving)
    return waiter.deferred


def _of_one(response: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"error_code": response["members"][0]["error_code"]}
