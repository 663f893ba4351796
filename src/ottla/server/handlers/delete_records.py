"""DeleteRecords, versions 0-2: move the start of a log up (KIP-107). Offset -1 means the high watermark.

The answer's low watermark is the new log start. Internal topics are refused with INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS
from ottla.protocol.messages import ApiKey
from ottla.server.api import ROW_COST, Handling, RequestContext, api

DELETION_COST = 200
"""Files may have to be renamed."""


@api(ApiKey.DELETE_RECORDS, versions=(0, 2))
def handle(context: RequestContext, request: Any) -> Handling:
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            low_watermark, error = -1, ErrorCode.none
            try:
                low_watermark = _delete(context, topic.name, asked.partition_index, asked.offset)
            except KafkaError as refused:
                error = refused.code
            row = {"partition_index": asked.partition_index, "low_watermark": low_watermark, "error_code": error}
            topics.setdefault(topic.name, {})[asked.partition_index] = row
            yield ROW_COST if error else DELETION_COST
    return {"topics": [{"name": name, "partitions": list(rows.values())} for name, rows in topics.items()]}


def _delete(context: RequestContext, topic: str, number: int, offset: int) -> int:
    partition = context.node.replicas.find(topic, number)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception)
    partition.check_leader()
    log = partition.log
    if offset != -1 and not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.offset_out_of_range)
    new_start: int = log.delete_records(offset)
    return new_start
