"""DeleteShareGroupOffsets, version 0: how far an empty share group has come in topics is dropped (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import encoded
from ottla.server.share_groups import check_enabled


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"error_code": error.code, "error_message": error.message or None, "responses": ()}


@api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    check_enabled(context)
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "The group id is invalid.")
    names = [topic.topic_name for topic in request.topics]
    rows = await context.node.share.groups.delete_offsets(request.group_id, names)
    return await encoded(context, {"error_code": ErrorCode.none, "error_message": None, "responses": rows}, "responses")
