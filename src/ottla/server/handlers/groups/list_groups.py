"""ListGroups, versions 0-5: the groups that this node coordinates. Version 4 filters by state (KIP-518), version 5 by
type (KIP-848); all that members can be in are classic.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import Refused, of_groups

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ListGroupsRequest
    from ottla.protocol.schemas.sent import ListedGroup, ListGroupsResponse

NEEDS: Final = (
    of_groups(Operation.DESCRIBE, "groups.group_id", refused=Refused.OMITTED, instead=(Operation.DESCRIBE,)),
)


@api(ApiKey.LIST_GROUPS, versions=(0, 5), needs=NEEDS)
async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    states, types = request.states_filter, request.types_filter
    found: Sequence[ListedGroup] = context.node.groups.list_groups(states, types)
    if context.node.authorizer is not None:
        operation, kind = Operation.DESCRIBE, ResourceType.GROUP
        visible = allowed(context, operation, kind, log_denial=False, on_cluster=operation)
        found = await run_yielding(_visible(found, visible))
    return {"error_code": ErrorCode.none, "groups": found}


def _visible(rows: Sequence[ListedGroup], visible: Container[str]) -> Generator[int, None, list[ListedGroup]]:
    found = []
    for row in rows:
        if row["group_id"] in visible:
            found.append(row)
        yield 2
    return found
