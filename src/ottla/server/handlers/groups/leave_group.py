"""LeaveGroup, versions 0-5: members go without waiting for their session to time out.

From version 3 several at once, static ones by their instance id, each with its own error (KIP-345); before, one member
whose error is the response's. Version 5 adds a reason (KIP-800).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.group.requests import LeaveGroup, Leaving
from ottla.drivers.cooperative import scheduler_of
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Deferred, RequestContext, api
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.security.permissions import group

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import LeaveGroupRequest, MemberIdentity
    from ottla.protocol.schemas.sent import LeaveGroupResponse, MemberResponse

LEAVING_AT_ONCE = 200
"""Members, of which one costs a few microseconds."""


@api(ApiKey.LEAVE_GROUP, versions=(0, 5), needs=(group(Operation.READ),))
def handle(context: RequestContext, request: LeaveGroupRequest) -> Deferred | Awaitable[LeaveGroupResponse]:
    if context.api_version >= 3:
        if len(request.members) > LEAVING_AT_ONCE:
            return _many(context, request.group_id, request.members)
        leaving = _leaving(request.members)
        waiter = DeferredReply(lambda response: response)
    else:
        leaving = [Leaving(request.member_id)]
        waiter = DeferredReply(_of_one)
    context.node.groups.ask(waiter, LeaveGroup(request.group_id, leaving))
    return waiter.deferred


def _leaving(members: Sequence[MemberIdentity]) -> list[Leaving]:
    return [Leaving(member.member_id, member.group_instance_id) for member in members]


async def _many(context: RequestContext, group_id: str, members: Sequence[MemberIdentity]) -> LeaveGroupResponse:
    """The first begin a rebalance, which is not over before the last are gone: those have not joined it."""
    rows: list[MemberResponse] = []
    scheduler = scheduler_of(asyncio.get_running_loop())
    for start in range(0, len(members), LEAVING_AT_ONCE):
        if start:
            await scheduler.next_slice()
        waiter = AwaitedReply()
        some = _leaving(members[start : start + LEAVING_AT_ONCE])
        context.node.groups.ask(waiter, LeaveGroup(group_id, some))
        rows += (await waiter.result)["members"]
    return {"error_code": ErrorCode.none, "members": rows}


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    return {"error_code": response["members"][0]["error_code"]}
