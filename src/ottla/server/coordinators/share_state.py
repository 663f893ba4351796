"""What the five APIs of the share coordinator have in common: a group, and a row for each of its share-partitions.

Rows are asked one by one and answered together, when the last of them is committed. As in Kafka a request without a
group or without topics has an empty answer, and of two rows for one share-partition both are done and the later counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.coordinator.share.requests import StateRequest, StateRow
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.server.api import ROW_COST, Handling, RequestContext, Response
from ottla.server.connections.long_answers import RowsOf

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import (
        DeleteShareGroupStateRequest,
        InitializeShareGroupStateRequest,
        ReadShareGroupStateRequest,
        ReadShareGroupStateSummaryRequest,
        WriteShareGroupStateRequest,
    )

    AnyStateRequest: TypeAlias = (
        DeleteShareGroupStateRequest
        | InitializeShareGroupStateRequest
        | ReadShareGroupStateRequest
        | ReadShareGroupStateSummaryRequest
        | WriteShareGroupStateRequest
    )

WRITE_COST: Final = 50
"""Cost of writing a record."""

Read = Callable[[SharePartitionKey, Any], StateRequest]
"""(share-partition, row of the request): what is asked of the coordinator."""


class StateReply:
    """The coordinator's answer to one row; an error too is a row."""

    __slots__ = ("_partition", "_what", "result")

    def __init__(self, partition: int, what: str) -> None:
        self._partition = partition
        self._what = what
        self.result: asyncio.Future[StateRow] = asyncio.get_running_loop().create_future()

    def complete(self, result: Any) -> None:
        if self.result.done():  # it has taken too long
            return
        if isinstance(result, KafkaError):
            message = f"Unable to {self._what}: {_MESSAGES.get(result.code, result.message)}"
            result = {"partition": self._partition, "error_code": result.code, "error_message": message}
        self.result.set_result(result)


_MESSAGES: Final = {
    ErrorCode.coordinator_load_in_progress: "The coordinator is loading and hence can't process requests.",
    ErrorCode.coordinator_not_available: "The coordinator is not available.",
    ErrorCode.not_coordinator: "This is not the correct coordinator.",
}


def on_error(context: RequestContext, request: AnyStateRequest, error: KafkaError) -> Response:
    def refused(topic: Any) -> dict[str, Any]:
        failed = {"error_code": error.code, "error_message": error.message}
        rows = RowsOf(topic.partitions, lambda row: {"partition": row.partition, **failed})
        return {"topic_id": topic.topic_id, "partitions": rows}

    return {"results": RowsOf(request.topics, refused)}


def ask_each(
    context: RequestContext, request: AnyStateRequest, what: str, read: Read, *, needs_partitions: bool = True
) -> Handling[Any]:
    """The answer to a request. `what` says in an error what could not be done. `needs_partitions`: the answer is empty
    where one topic has none."""
    if not request.group_id or (needs_partitions and (yield from _lacks_partitions(request.topics))):
        return {"results": ()}
    coordinator = context.node.share_coordinator
    asked: dict[Any, dict[int, StateReply]] = {}
    for topic in request.topics:
        topic_id = topic.topic_id or ZERO_UUID
        for row in topic.partitions:
            reply = StateReply(row.partition, what)
            try:
                coordinator.ask(reply, read(SharePartitionKey(request.group_id, topic_id, row.partition), row))
            except KafkaError as error:
                reply.complete(error)
            asked.setdefault(topic_id, {})[row.partition] = reply
            yield WRITE_COST
        yield 1
    results = []
    for topic_id, replies in asked.items():
        rows = []
        for reply in replies.values():
            rows.append(reply.result.result() if reply.result.done() else (yield reply.result))
            yield ROW_COST
        results.append({"topic_id": topic_id, "partitions": rows})
    return {"results": results}


def _lacks_partitions(topics: Sequence[Any]) -> Handling[bool]:
    for topic in topics:
        if not topic.partitions:
            return True
        yield 1
    return False
