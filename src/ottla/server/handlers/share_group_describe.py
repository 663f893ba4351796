"""ShareGroupDescribe, version 1: share groups with their members and what these have (KIP-932)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import RowsOf, row_by_row
from ottla.server.share_groups import check_enabled


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"groups": RowsOf(request.group_ids, lambda each: _failed(each, error))}


@api(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), on_error=_on_error)
def handle(context: RequestContext, request: Any) -> Response | Awaitable[Response]:
    check_enabled(context)
    return row_by_row(context, "groups", request.group_ids, lambda each: _describe(context, each))


def _describe(context: RequestContext, group_id: str) -> dict[str, Any]:
    if not group_id:
        return _failed(group_id, KafkaError(ErrorCode.invalid_group_id))
    try:
        return context.node.share.groups.describe(group_id)
    except KafkaError as error:
        return _failed(group_id, error)


def _failed(group_id: str, error: KafkaError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": error.message or None, "group_id": group_id}
