"""DeleteRecords, versions 0-2: move the start of a log up (KIP-107). Offset -1 means the high watermark.

The answer's low watermark is the lowest log start of all living replicas; it waits until that has reached what was
asked for (Kafka's DelayedDeleteRecords). Internal topics are refused with INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS, Offset
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from ottla.replication.record_deletion import delete_records, low_watermark, wait_for_deletion
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DeleteRecordsRequest
    from ottla.protocol.schemas.sent import DeleteRecordsPartitionResult, DeleteRecordsResponse

DELETION_COST = 200
"""Files may have to be renamed."""


class _Behind(NamedTuple):
    """A deletion that not all replicas have made."""

    partition: Partition
    offset: Offset
    row: DeleteRecordsPartitionResult


@api(ApiKey.DELETE_RECORDS, versions=(0, 2), needs=(of_topics(Operation.DELETE, "topics.name"),))
def handle(
    context: RequestContext, request: DeleteRecordsRequest
) -> Handling[DeleteRecordsResponse | Coroutine[None, None, DeleteRecordsResponse]]:
    topics: dict[str, dict[int, DeleteRecordsPartitionResult]] = {}
    behind: dict[Partition, _Behind] = {}
    deletable = allowed(context, Operation.DELETE)
    for topic in request.topics:
        for asked in topic.partitions:
            row: DeleteRecordsPartitionResult = {
                "partition_index": asked.partition_index,
                "low_watermark": -1,
                "error_code": ErrorCode.none,
            }
            before: Offset | None = None
            try:
                if topic.name not in deletable:
                    raise KafkaError(ErrorCode.topic_authorization_failed)
                partition = context.node.replicas.find(topic.name, asked.partition_index)
                if topic.name in INTERNAL_TOPICS:
                    raise KafkaError(ErrorCode.invalid_topic_exception)
                before = partition.log.log_start_offset
                offset = delete_records(partition, asked.offset)
                row["low_watermark"] = low = low_watermark(partition)
                if low < offset:
                    behind[partition] = _Behind(partition, offset, row)
            except KafkaError as refused:
                row["error_code"] = refused.code
            topics.setdefault(topic.name, {})[asked.partition_index] = row
            if context.node.audit is not None:
                change = (f"start of partition {asked.partition_index}", before, _start(context, topic.name, row))
                context.node.audit.administered(context, "TOPIC", topic.name, row["error_code"], [change])
            yield ROW_COST if row["error_code"] else DELETION_COST
    response: DeleteRecordsResponse = {
        "topics": [{"name": name, "partitions": list(rows.values())} for name, rows in topics.items()]
    }
    return _when_deleted(response, list(behind.values()), request.timeout / 1000) if behind else response


def _start(context: RequestContext, topic: str, row: DeleteRecordsPartitionResult) -> Offset | None:
    """Where the log begins now."""
    partition = None if row["error_code"] else context.node.replicas.get(topic, row["partition_index"])
    return None if partition is None else partition.log.log_start_offset


async def _when_deleted(
    response: DeleteRecordsResponse, behind: Sequence[_Behind], timeout_s: float
) -> DeleteRecordsResponse:
    """The answer, when all living replicas have followed or the request's time is over."""
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[ErrorCode]] = [loop.create_future() for _ in behind]
    waits = [
        wait_for_deletion(each.partition, each.offset, future.set_result)
        for each, future in zip(behind, futures, strict=True)
    ]
    await asyncio.wait(futures, timeout=max(timeout_s, 0))
    for each, future, wait in zip(behind, futures, waits, strict=True):
        if future.done():
            each.row["error_code"] = future.result()
        else:
            each.row["error_code"] = ErrorCode.request_timed_out
            if wait is not None:
                each.partition.stop_waiting(wait)
        each.row["low_watermark"] = -1 if each.row["error_code"] else low_watermark(each.partition)
    return response
