"""DeleteTopics, versions 1-6 (by topic id from 6, KIP-516). Refused as a whole when `delete.topic.enable` is false."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import to_controller
from ottla.server.security.authorization import allowed, decides_here, is_allowed_on_cluster, refusal
from ottla.server.security.permissions import of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas import received, sent


def _on_error(
    context: RequestContext, request: received.DeleteTopicsRequest, error: KafkaError
) -> sent.DeleteTopicsResponse:
    code = error.code
    if code == ErrorCode.topic_deletion_disabled and context.api_version < 3:
        code = ErrorCode.invalid_request
    row: sent.DeletableTopicResult = {"error_code": code, "error_message": error.message}
    if context.api_version < 6:
        return {"responses": RowsOf(request.topic_names, lambda name: {"name": name, **row})}
    rows: RowsOf[sent.DeletableTopicResult] = RowsOf(
        request.topics, lambda topic: {"name": topic.name, "topic_id": topic.topic_id, **row}
    )
    return {"responses": rows}


NEEDS: Final = (
    of_topics(Operation.DELETE, "topics.name", instead=(Operation.DELETE,), at_controller=True),
    of_topics(Operation.DESCRIBE, "topics.name", instead=(Operation.DELETE,), at_controller=True),
)


@api(ApiKey.DELETE_TOPICS, versions=(1, 6), needs=NEEDS, on_error=_on_error)
async def handle(context: RequestContext, request: received.DeleteTopicsRequest) -> sent.DeleteTopicsResponse:
    asked: list[sent.DeleteTopicsRequest] = [await run_yielding(plain_in_steps(request))]
    refused = await run_yielding(_unauthorized(context, asked[0]))
    answer: sent.DeleteTopicsResponse = await to_controller(context, asked.pop())
    if refused:
        answer = {**answer, "responses": [*answer["responses"], *refused]}
    return answer


def _unauthorized(
    context: RequestContext, asked: sent.DeleteTopicsRequest
) -> Generator[int, None, list[sent.DeletableTopicResult]]:
    """The rows of topics that the client may not delete, which are taken out of the request.

    Of a topic named by its id the name is shown to those who may describe it. Whoever may not describe a topic does not
    learn whether there is one of its name; of ids that is no secret, as in Kafka. What comes twice, or in no good form,
    is the controller's to refuse.
    """
    refused: list[sent.DeletableTopicResult] = []
    if context.node.authorizer is None or not decides_here(context.node):
        return refused
    if is_allowed_on_cluster(context, Operation.DELETE, log_denial=False):
        return refused
    image = context.node.image
    describable, deletable = allowed(context, Operation.DESCRIBE), allowed(context, Operation.DELETE)

    def refuse(name: str | None, topic_id: UUID) -> None:
        error = refusal(context, Operation.DELETE, ResourceType.TOPIC, name)
        refused.append({"name": name, "topic_id": topic_id, "error_code": error.code, "error_message": error.message})

    def may_delete(name: str) -> bool:
        """An absent topic may be told of to whoever may describe it."""
        return name in describable and (image.topic(name) is None or name in deletable)

    times = Counter(asked.get("topic_names", ()))
    topics = asked.get("topics", ())
    times.update(topic["name"] for topic in topics if topic["name"] is not None and topic["topic_id"] == ZERO_UUID)
    of_ids = Counter(topic["topic_id"] for topic in topics if topic["name"] is None)
    names: list[str] = []
    for name in asked.get("topic_names", ()):
        yield 3
        if times[name] > 1 or may_delete(name):
            names.append(name)
        else:
            refuse(name, ZERO_UUID)
    rest: list[sent.DeleteTopicState] = []
    for topic in topics:
        yield 3
        named, topic_id = topic["name"], topic["topic_id"]
        found = None if topic_id == ZERO_UUID else image.topic_by_id(topic_id)
        if named is not None and topic_id == ZERO_UUID and times[named] == 1 and not may_delete(named):
            refuse(named, ZERO_UUID)
        elif named is None and found is not None and of_ids[topic_id] == 1 and found.name not in deletable:
            refuse(found.name if found.name in describable else None, topic_id)
        else:
            rest.append(topic)
    if "topic_names" in asked:
        asked["topic_names"] = names
    if "topics" in asked:
        asked["topics"] = rest
    return refused
