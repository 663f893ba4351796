"""ListGroups, versions 0-5: the groups that this node coordinates. Version 4 filters by state (KIP-518), version 5 by
type (KIP-848); all that members can be in are classic.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from typing import Any, Final

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, Response, api
from ottla.server.authorization import allowed
from ottla.server.permissions import Refused, of_groups

NEEDS: Final = (
    of_groups(Operation.DESCRIBE, "groups.group_id", refused=Refused.OMITTED, instead=(Operation.DESCRIBE,)),
)


@api(ApiKey.LIST_GROUPS, versions=(0, 5), needs=NEEDS)
async def handle(context: RequestContext, request: Any) -> Response:
    states, types = getattr(request, "states_filter", ()), getattr(request, "types_filter", ())
    found = context.node.groups.list_groups(states, types)
    if context.node.authorizer is not None:
        operation, kind = Operation.DESCRIBE, ResourceType.GROUP
        visible = allowed(context, operation, kind, log_denial=False, on_cluster=operation)
        found = await run_yielding(_visible(found, visible))
    return {"error_code": ErrorCode.none, "groups": found}


def _visible(rows: Sequence[dict[str, Any]], visible: Container[str]) -> Generator[int, None, list[dict[str, Any]]]:
    found = []
    for row in rows:
        if row["group_id"] in visible:
            found.append(row)
        yield 2
    return found
