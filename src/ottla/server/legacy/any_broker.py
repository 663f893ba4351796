"""Offsets of version 0, which clients send to any broker: with ZooKeeper there was no coordinator to look for.

Kafka kept these offsets in ZooKeeper, apart from those of the group. Here they are the group's: where this node does
not coordinate the group, it asks the one that does, once its own client may ask. What is not there yet (the topic of
the offsets, a coordinator that is loading) is waited for, as these clients do not know the errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import OFFSETS_TOPIC
from ottla.network import Address
from ottla.protocol import messages
from ottla.server.api import Deferred, Handling, RequestContext
from ottla.server.metadata import topic_creation

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import OffsetCommitRequest, OffsetFetchRequest

PATIENCE_SECONDS: Final = 5.0
"""A client waits for 10 seconds or more."""
PAUSE_SECONDS: Final = 0.1
ELSEWHERE: Final = frozenset({
    ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress,
})  # fmt: skip


def anywhere(
    context: RequestContext,
    request: OffsetCommitRequest | OffsetFetchRequest,
    version: int,
    locally: Callable[[], Handling[Any]],
) -> Handling[Mapping[str, Any]]:
    """The answer of the group's coordinator. `locally` asks this node, `version` is that of `request`."""
    loop, node = asyncio.get_running_loop(), context.node
    ends_s = loop.time() + PATIENCE_SECONDS
    while True:
        response: Mapping[str, Any] = yield from locally()
        if not _is_elsewhere(response) or loop.time() >= ends_s:
            return response
        try:
            if node.image.topic(OFFSETS_TOPIC) is None:
                yield topic_creation.create_own(node, [OFFSETS_TOPIC])
            coordinator, endpoint = node.groups.find(request.group_id, node.inter_broker_listener)
            if coordinator != node.node_id:
                address = Address(endpoint.host, endpoint.port)
                answer = yield _asked(context, address, request, version)
                response = yield from _merged(response, answer)
                if not _is_elsewhere(response):
                    return response
        except KafkaError:  # the cluster is changing
            pass
        yield asyncio.sleep(PAUSE_SECONDS)


def awaited(deferred: Deferred) -> Awaitable[Any]:
    """The result of `deferred`, as something to await."""
    future = asyncio.get_running_loop().create_future()

    def complete(result: Any) -> None:
        if future.done():
            return
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    if deferred.done:
        complete(deferred.result)
    else:
        deferred.on_complete = complete
    return future


def _is_elsewhere(response: Mapping[str, Any]) -> bool:
    return any(row["error_code"] in ELSEWHERE for topic in response["topics"] for row in topic["partitions"])


async def _asked(
    context: RequestContext, address: Address, request: OffsetCommitRequest | OffsetFetchRequest, version: int
) -> Any:
    """The coordinator's answer, as plain mappings. Raises KafkaError."""
    node = context.node
    name = f"broker-{node.node_id}-old-offsets"
    client = node.broker_clients.new(name, request_timeout_ms=int(PATIENCE_SECONDS * 1000))
    try:
        values = messages.plain(request)
        answer = await client.ask(address, context.api_key, values, versions=(version, version))
    finally:
        await client.close()
    return messages.plain(answer.response)


def _merged(response: Mapping[str, Any], answer: Mapping[str, Any]) -> Handling[Mapping[str, Any]]:
    """`response` with the rows of `answer` for those that are decided elsewhere."""
    known = {(topic["name"], row["partition_index"]): row for topic in answer["topics"] for row in topic["partitions"]}
    topics = []
    for topic in response["topics"]:
        rows = []
        for row in topic["partitions"]:
            found = known.get((topic["name"], row["partition_index"]))
            rows.append(row if found is None or row["error_code"] not in ELSEWHERE else found)
            yield 1
        topics.append({"name": topic["name"], "partitions": rows})
    return {"topics": topics}
