"""ShareGroupDescribe, version 1: share groups with their members and what these have (KIP-932)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.kinds import kind_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, Response, api
from ottla.server.connections.long_answers import RowsOf, row_by_row
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.handlers.groups.consumer_group_describe import HIDDEN, check_topics, topics_of
from ottla.server.handlers.groups.describe_groups import NOT_ASKED, operations_on
from ottla.server.security.authorization import authorize
from ottla.server.security.permissions import of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ShareGroupDescribeRequest
    from ottla.protocol.schemas.sent import ShareGroupDescribeResponse, ShareGroupDescribeResponseDescribedGroup


def _on_error(
    context: RequestContext, request: ShareGroupDescribeRequest, error: KafkaError
) -> ShareGroupDescribeResponse:
    return {"groups": RowsOf(request.group_ids, lambda each: _failed(each, error))}


NEEDS: Final = (of_groups(Operation.DESCRIBE, "group_ids"), of_topics(Operation.DESCRIBE, "groups.members.assignment"))


@api(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), needs=NEEDS, on_error=_on_error)
def handle(context: RequestContext, request: ShareGroupDescribeRequest) -> Response | Awaitable[Response]:
    check_enabled(context, "share")
    return row_by_row("groups", request.group_ids, lambda each: _describe(context, request, each))


def _describe(
    context: RequestContext, request: ShareGroupDescribeRequest, group_id: str
) -> ShareGroupDescribeResponseDescribedGroup:
    try:
        authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        found: ShareGroupDescribeResponseDescribedGroup = context.node.groups.read_committed(
            kind_of("share").describe, group_id
        )
        check_topics(context, topics_of(each["assignment"] for each in found["members"]), HIDDEN)
        operations = operations_on(context, group_id) if request.include_authorized_operations else NOT_ASKED
        return {**found, "authorized_operations": operations}
    except KafkaError as error:
        return _failed(group_id, error)


def _failed(group_id: str, error: KafkaError) -> ShareGroupDescribeResponseDescribedGroup:
    return {"error_code": error.code, "error_message": error.message or None, "group_id": group_id}
