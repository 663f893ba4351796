"""StreamsGroupDescribe, version 0: state, epochs, topology and members of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.handlers.describe_groups import ALL_OPERATIONS, NOT_ASKED
from ottla.server.handlers.streams_group_heartbeat import check_enabled
from ottla.server.long_answers import RowsOf, row_by_row


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"groups": RowsOf(request.group_ids, lambda group_id: _failed(group_id, error))}


@api(ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 0), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Response | Awaitable[Response]:
    check_enabled(context)
    return row_by_row(context, "groups", request.group_ids, lambda group_id: _describe(context, request, group_id))


def _describe(context: RequestContext, request: Any, group_id: str) -> dict[str, Any]:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        found: dict[str, Any] = context.node.groups.describe_streams_group(group_id)
    except KafkaError as error:
        return _failed(group_id, error)
    operations = ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return {"error_code": ErrorCode.none, "error_message": None, **found, "authorized_operations": operations}


def _failed(group_id: str, error: KafkaError) -> dict[str, Any]:
    return {
        "error_code": error.code, "error_message": error.message, "group_id": group_id, "group_state": "",
        "group_epoch": 0, "assignment_epoch": 0, "topology": None, "members": (),
        "authorized_operations": NOT_ASKED,
    }  # fmt: skip
