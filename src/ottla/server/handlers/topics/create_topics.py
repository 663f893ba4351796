"""CreateTopics, versions 2-7 (topic ids from 7, KIP-516; effective settings in the answer from 5, KIP-525).

Rows of the answer stand for themselves: a topic that cannot be created does not keep the others from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.incremental_free import free_in_steps, without_frames
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import to_controller
from ottla.server.security.authorization import allowed, decides_here, refusal
from ottla.server.security.permissions import Refused, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas import received, sent


def _on_error(
    context: RequestContext, request: received.CreateTopicsRequest, error: KafkaError
) -> sent.CreateTopicsResponse:
    row: sent.CreatableTopicResult = {"error_code": error.code, "error_message": error.message}
    return {"topics": RowsOf(request.topics, lambda topic: {"name": topic.name, **row})}


CONFIGS_SINCE: Final = 5

NEEDS: Final = (
    of_topics(Operation.CREATE, "topics.name", instead=(Operation.CREATE,), at_controller=True),
    of_topics(
        Operation.DESCRIBE_CONFIGS,
        "topics.configs",
        refused=Refused.OMITTED,
        at_controller=True,
        versions=(5, 7),
    ),
)


@api(ApiKey.CREATE_TOPICS, versions=(2, 7), needs=NEEDS, on_error=_on_error)
async def handle(context: RequestContext, request: received.CreateTopicsRequest) -> sent.CreateTopicsResponse:
    asked: list[sent.CreateTopicsRequest] = [await run_yielding(plain_in_steps(request))]
    refused = await run_yielding(_unauthorized(context, asked[0]))
    try:
        answer: sent.CreateTopicsResponse = await to_controller(context, asked[0])
    except KafkaError as error:
        without_frames(error)  # they refer to what was asked
        raise
    finally:
        await run_yielding(free_in_steps(asked))
    if context.node.authorizer is not None and decides_here(context.node):
        rows = answer["topics"]
        if context.api_version >= CONFIGS_SINCE:
            rows = await run_yielding(_shown(context, rows))
        answer = {**answer, "topics": [*rows, *refused]}
    return answer


def _unauthorized(
    context: RequestContext, asked: sent.CreateTopicsRequest
) -> Generator[int, None, list[sent.CreatableTopicResult]]:
    """The rows of topics that the client may not create, which are taken out of the request. What nobody may create is
    the controller's to refuse."""
    refused: list[sent.CreatableTopicResult] = []
    if context.node.authorizer is None or not decides_here(context.node):
        return refused
    creatable = allowed(context, Operation.CREATE, on_cluster=Operation.CREATE)
    names = Counter(topic["name"] for topic in asked["topics"])
    rest = []
    for topic in asked["topics"]:
        name = topic["name"]
        if names[name] > 1 or name == METADATA_TOPIC or name in creatable:
            rest.append(topic)
        else:
            error = refusal(context, Operation.CREATE, ResourceType.TOPIC, name)
            refused.append({"name": name, "error_code": error.code, "error_message": error.message, "configs": ()})
        yield 3
    asked["topics"] = rest
    return refused


def _shown(
    context: RequestContext, rows: Sequence[sent.CreatableTopicResult]
) -> Generator[int, None, list[sent.CreatableTopicResult]]:
    """The rows of the controller, without the settings of topics whose settings the client may not see."""
    describable = allowed(context, Operation.DESCRIBE_CONFIGS, log_denial=False)
    shown = []
    for row in rows:
        yield 3
        if row["error_code"] or row["name"] in describable:
            shown.append(row)
        else:
            shown.append({**row, **_HIDDEN})
    return shown


_HIDDEN: sent.CreatableTopicResult = {
    "topic_config_error_code": ErrorCode.topic_authorization_failed,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": (),
}
