"""CreateTopics, versions 2-7 (topic ids from 7, KIP-516; effective settings in the answer from 5, KIP-525).

Rows of the answer stand for themselves: a topic that cannot be created does not keep the others from it.
"""

from __future__ import annotations

from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api
from ottla.server.forwarding import to_controller
from ottla.server.freeing import freeing, without_frames
from ottla.server.long_answers import RowsOf, encoded


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    row = {"error_code": error.code, "error_message": error.message}
    return {"topics": RowsOf(request.topics, lambda topic: {"name": topic.name, **row})}


@api(ApiKey.CREATE_TOPICS, versions=(2, 7), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    asked = [await run_yielding(plain(request))]
    try:
        answer = await to_controller(context, asked[0])
    except KafkaError as error:
        without_frames(error)  # they refer to what was asked
        raise
    finally:
        await run_yielding(freeing(asked))
    return await encoded(context, answer, "topics", shared="configs")
