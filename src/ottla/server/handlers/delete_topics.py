"""DeleteTopics, versions 1-6 (by topic id from 6, KIP-516). Refused as a whole when `delete.topic.enable` is false."""

from __future__ import annotations

from typing import Any

from ottla.controller.topics import delete_topics
from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import encoded


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    code = error.code
    if code == ErrorCode.topic_deletion_disabled and context.api_version < 3:
        code = ErrorCode.invalid_request
    row = {"error_code": code, "error_message": error.message}
    names = [(name, None) for name in getattr(request, "topic_names", ())]
    both = names + [(topic.name, topic.topic_id) for topic in getattr(request, "topics", ())]
    return {"responses": [{"name": name, "topic_id": topic_id, **row} for name, topic_id in both]}


@api(ApiKey.DELETE_TOPICS, versions=(1, 6), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    asked = await run_yielding(plain(request))
    config = context.node.config
    answer = await context.node.controller.submit(lambda image, now: delete_topics(image, asked, config))
    return await encoded(context, answer, "responses")
