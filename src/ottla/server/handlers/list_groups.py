"""ListGroups, versions 0-5: the groups that this node coordinates. Version 4 filters by state (KIP-518), version 5 by
type (KIP-848); all that members can be in are classic.
"""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import encoded


@api(ApiKey.LIST_GROUPS, versions=(0, 5))
async def handle(context: RequestContext, request: Any) -> Response:
    states, types = getattr(request, "states_filter", ()), getattr(request, "types_filter", ())
    found = context.node.groups.list_groups(states, types)
    return await encoded(context, {"error_code": ErrorCode.none, "groups": found}, "groups")
