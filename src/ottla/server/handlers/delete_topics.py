"""DeleteTopics, versions 1-6 (by topic id from 6, KIP-516). Refused as a whole when `delete.topic.enable` is false."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any, Final
from uuid import UUID

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, Response, api
from ottla.server.authorization import allowed, decides_here, is_allowed_on_cluster, refusal
from ottla.server.forwarding import to_controller
from ottla.server.long_answers import RowsOf
from ottla.server.permissions import of_topics


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    code = error.code
    if code == ErrorCode.topic_deletion_disabled and context.api_version < 3:
        code = ErrorCode.invalid_request
    row = {"error_code": code, "error_message": error.message}
    if context.api_version < 6:
        return {"responses": RowsOf(request.topic_names, lambda name: {"name": name, **row})}
    rows = RowsOf(request.topics, lambda topic: {"name": topic.name, "topic_id": topic.topic_id, **row})
    return {"responses": rows}


_NO_ID: Final = (None, ZERO_UUID)

NEEDS: Final = (
    of_topics(Operation.DELETE, "topics.name", instead=(Operation.DELETE,), at_controller=True),
    of_topics(Operation.DESCRIBE, "topics.name", instead=(Operation.DELETE,), at_controller=True),
)


@api(ApiKey.DELETE_TOPICS, versions=(1, 6), needs=NEEDS, on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    asked = [await run_yielding(plain_in_steps(request))]
    refused = await run_yielding(_unauthorized(context, asked[0]))
    answer = await to_controller(context, asked.pop())
    if refused:
        answer = {**answer, "responses": [*answer["responses"], *refused]}
    return answer


def _unauthorized(context: RequestContext, asked: dict[str, Any]) -> Generator[int, None, list[dict[str, Any]]]:
    """The rows of topics that the client may not delete, which are taken out of the request.

    Of a topic named by its id the name is shown to those who may describe it. Whoever may not describe a topic does not
    learn whether there is one of its name; of ids that is no secret, as in Kafka. What comes twice, or in no good form,
    is the controller's to refuse.
    """
    refused: list[dict[str, Any]] = []
    if context.node.authorizer is None or not decides_here(context.node):
        return refused
    if is_allowed_on_cluster(context, Operation.DELETE, log_denial=False):
        return refused
    image = context.node.image
    describable, deletable = allowed(context, Operation.DESCRIBE), allowed(context, Operation.DELETE)

    def refuse(name: str | None, topic_id: UUID | None) -> None:
        error = refusal(context, Operation.DELETE, ResourceType.TOPIC, name)
        row = {"name": name, "topic_id": topic_id, "error_code": error.code, "error_message": error.message}
        refused.append(row)

    def may_delete(name: str) -> bool:
        """An absent topic may be told of to whoever may describe it."""
        return name in describable and (image.topic(name) is None or name in deletable)

    times = Counter(asked.get("topic_names", ()))
    topics = asked.get("topics", ())
    times.update(topic["name"] for topic in topics if topic["name"] is not None and topic["topic_id"] in _NO_ID)
    of_ids = Counter(topic["topic_id"] for topic in topics if topic["name"] is None)
    names: list[str] = []
    for name in asked.get("topic_names", ()):
        yield 3
        if times[name] > 1 or may_delete(name):
            names.append(name)
        else:
            refuse(name, ZERO_UUID)
    rest: list[Any] = []
    for topic in topics:
        yield 3
        name, topic_id = topic["name"], topic["topic_id"]
        found = None if topic_id in _NO_ID else image.topic_by_id(topic_id)
        if name is not None and topic_id in _NO_ID and times[name] == 1 and not may_delete(name):
            refuse(name, ZERO_UUID)
        elif name is None and found is not None and of_ids[topic_id] == 1 and found.name not in deletable:
            refuse(found.name if found.name in describable else None, topic_id)
        else:
            rest.append(topic)
    for field, left in (("topic_names", names), ("topics", rest)):
        if field in asked:
            asked[field] = left
    return refused
