"""CreatePartitions, versions 0-3 (KIP-195)."""

from __future__ import annotations

from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api
from ottla.server.forwarding import to_controller
from ottla.server.long_answers import RowsOf, encoded


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    row = {"error_code": error.code, "error_message": error.message}
    return {"results": RowsOf(request.topics, lambda topic: {"name": topic.name, **row})}


@api(ApiKey.CREATE_PARTITIONS, versions=(0, 3), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    answer = await to_controller(context, await run_yielding(plain(request)))
    return await encoded(context, answer, "results")
