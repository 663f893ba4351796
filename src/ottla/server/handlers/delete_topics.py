"""DeleteTopics, versions 1-6 (by topic id from 6, KIP-516). Refused as a whole when `delete.topic.enable` is false."""

from __future__ import annotations

from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api
from ottla.server.forwarding import to_controller
from ottla.server.long_answers import RowsOf, encoded


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    code = error.code
    if code == ErrorCode.topic_deletion_disabled and context.api_version < 3:
        code = ErrorCode.invalid_request
    row = {"error_code": code, "error_message": error.message}
    if context.api_version < 6:
        return {"responses": RowsOf(request.topic_names, lambda name: {"name": name, **row})}
    rows = RowsOf(request.topics, lambda topic: {"name": topic.name, "topic_id": topic.topic_id, **row})
    return {"responses": rows}


@api(ApiKey.DELETE_TOPICS, versions=(1, 6), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    answer = await to_controller(context, await run_yielding(plain(request)))
    return await encoded(context, answer, "responses")
