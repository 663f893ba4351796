"""AlterShareGroupOffsets, version 0: an operator says where an empty share group goes on (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import encoded
from ottla.server.share_groups import check_enabled


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"error_code": error.code, "error_message": error.message or None, "responses": ()}


@api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    check_enabled(context)
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "The group id is invalid.")
    topics = {
        topic.topic_name: {row.partition_index: row.start_offset for row in topic.partitions}
        for topic in request.topics
    }
    rows = await context.node.share.groups.alter_offsets(request.group_id, topics)
    return await encoded(context, {"error_code": ErrorCode.none, "error_message": None, "responses": rows}, "responses")
