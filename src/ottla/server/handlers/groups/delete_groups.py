"""DeleteGroups, versions 0-3: delete empty groups and their offsets (KIP-229). Version 3 has room for a sentence."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.coordinator.group.requests import DeleteGroups
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf, in_steps
from ottla.server.security.authorization import authorize
from ottla.server.security.permissions import of_groups

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DeleteGroupsRequest
    from ottla.protocol.schemas.sent import DeletableGroupResult, DeleteGroupsResponse


def on_error(context: RequestContext, request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    code = error.code
    return {"results": RowsOf(request.groups_names, lambda group_id: {"group_id": group_id, "error_code": code})}


@api(
    ApiKey.DELETE_GROUPS,
    versions=(0, 3),
    needs=(of_groups(Operation.DELETE, "groups_names"),),
    on_error=on_error,
)
async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Groups are deleted one by one, as they live in different shards; the response goes out with the last answer."""
    group_ids = list(dict.fromkeys(request.groups_names))
    waiting = await run_yielding(in_steps(group_ids, partial(_delete, context)))
    results: list[DeletableGroupResult] = []
    for group_id, waiter in zip(group_ids, waiting, strict=True):
        try:
            error: ErrorCode = (await waiter.result)["groups"][group_id]
            if error is ErrorCode.unsupported_version:
                error = await _delete_share_group(context, group_id)
        except KafkaError as failed:
            error = failed.code
        results.append({"group_id": group_id, "error_code": error})
        if context.node.audit is not None:
            context.node.audit.administered(context, "GROUP", group_id, error)
    return {"results": results}


def _delete(context: RequestContext, group_id: str) -> AwaitedReply:
    waiter = AwaitedReply()
    try:
        authorize(context, Operation.DELETE, ResourceType.GROUP, group_id)
        context.node.groups.ask(waiter, DeleteGroups([group_id]))
    except KafkaError as error:
        waiter.complete(error)
    return waiter


async def _delete_share_group(context: RequestContext, group_id: str) -> ErrorCode:
    """The group coordinator leaves it, as what the share coordinators keep of it goes first."""
    waiter = AwaitedReply()
    if not await context.node.share.groups.delete_group(waiter, group_id):
        return ErrorCode.unsupported_version
    error: ErrorCode = (await waiter.result)["groups"][group_id]
    return error
