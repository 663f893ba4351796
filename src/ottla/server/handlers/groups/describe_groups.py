"""DescribeGroups, versions 0-6: state, members and assignments of classic groups.

Version 3 adds authorized operations (KIP-430), 4 static members (KIP-345). Before version 6 a group that does not exist
is just Dead, since then also GROUP_ID_NOT_FOUND (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.classic.describe import describe
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, Response, api
from ottla.server.connections.long_answers import RowsOf, row_by_row
from ottla.server.security.authorization import authorize, authorized_operations
from ottla.server.security.permissions import of_groups

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeGroupsRequest
    from ottla.protocol.schemas.sent import DescribeGroupsResponse, DescribeGroupsResponseDescribedGroup

NOT_ASKED: Final = -(2**31)


def on_error(context: RequestContext, request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return {"groups": RowsOf(request.groups, lambda group_id: _failed(group_id, error))}


@api(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), needs=(of_groups(Operation.DESCRIBE, "groups"),), on_error=on_error)
def handle(context: RequestContext, request: DescribeGroupsRequest) -> Response | Awaitable[Response]:
    return row_by_row("groups", request.groups, lambda group_id: _describe(context, request, group_id))


def _describe(
    context: RequestContext, request: DescribeGroupsRequest, group_id: str
) -> DescribeGroupsResponseDescribedGroup:
    try:
        authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        found: DescribeGroupsResponseDescribedGroup = context.node.groups.read_committed(describe, group_id)
    except KafkaError as error:
        return _failed(group_id, error)
    if found["error_code"] is ErrorCode.group_id_not_found and context.api_version < 6:
        found["error_code"] = ErrorCode.none
    asked = request.include_authorized_operations and found["error_code"] is ErrorCode.none
    found["authorized_operations"] = operations_on(context, group_id) if asked else NOT_ASKED
    return found


def operations_on(context: RequestContext, group_id: str) -> int:
    return authorized_operations(context, ResourceType.GROUP, group_id)


def _failed(group_id: str, error: KafkaError) -> DescribeGroupsResponseDescribedGroup:
    return {
        "error_code": error.code,
        "error_message": error.message,
        "group_id": group_id,
        "authorized_operations": NOT_ASKED,
    }
