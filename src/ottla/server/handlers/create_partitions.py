"""CreatePartitions, versions 0-3 (KIP-195)."""

from __future__ import annotations

from typing import Any

from ottla.controller.topics import create_partitions
from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import encoded


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    row = {"error_code": error.code, "error_message": error.message}
    return {"results": [{"name": topic.name, **row} for topic in request.topics]}


@api(ApiKey.CREATE_PARTITIONS, versions=(0, 3), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    asked = await run_yielding(plain(request))
    random = context.node.random
    answer = await context.node.controller.submit(lambda image, now: create_partitions(image, asked, random))
    return await encoded(context, answer, "results")
