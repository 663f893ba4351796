"""CreatePartitions, versions 0-3 (KIP-195)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import to_controller
from ottla.server.security.authorization import allowed, decides_here, refusal
from ottla.server.security.permissions import of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas import received, sent


def _on_error(
    context: RequestContext, request: received.CreatePartitionsRequest, error: KafkaError
) -> sent.CreatePartitionsResponse:
    row: sent.CreatePartitionsTopicResult = {"error_code": error.code, "error_message": error.message}
    return {"results": RowsOf(request.topics, lambda topic: {"name": topic.name, **row})}


@api(
    ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    on_error=_on_error,
    needs=(of_topics(Operation.ALTER, "topics.name", at_controller=True),),
)
async def handle(context: RequestContext, request: received.CreatePartitionsRequest) -> sent.CreatePartitionsResponse:
    asked: list[sent.CreatePartitionsRequest] = [await run_yielding(plain_in_steps(request))]
    refused = await run_yielding(_unauthorized(context, asked[0]))
    answer: sent.CreatePartitionsResponse = await to_controller(context, asked.pop())
    return {**answer, "results": [*answer["results"], *refused]} if refused else answer


def _unauthorized(
    context: RequestContext, asked: sent.CreatePartitionsRequest
) -> Generator[int, None, list[sent.CreatePartitionsTopicResult]]:
    """The rows of topics that the client may not alter, which are taken out of the request. Names that come twice are
    the controller's to refuse."""
    refused: list[sent.CreatePartitionsTopicResult] = []
    if context.node.authorizer is None or not decides_here(context.node):
        return refused
    alterable = allowed(context, Operation.ALTER)
    names = Counter(topic["name"] for topic in asked["topics"])
    rest = []
    for topic in asked["topics"]:
        name = topic["name"]
        if names[name] > 1 or name in alterable:
            rest.append(topic)
        else:
            error = refusal(context, Operation.ALTER, ResourceType.TOPIC, name)
            refused.append({"name": name, "error_code": error.code, "error_message": error.message})
        yield 3
    asked["topics"] = rest
    return refused
