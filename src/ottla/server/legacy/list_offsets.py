"""ListOffsets, version 0: offsets at which segments begin, newest first, at most as many as the client asks for.

As Kafka's `legacyFetchOffsetsBefore`: for -1 (latest) the end and the segments before it, for -2 (earliest) the start
of the log, for a time the segments that were last written by then. When a segment was last written is the time of its
newest record, where Kafka looks at the file's. Consumers see nothing beyond the high watermark.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_LEADER_EPOCH, Buffer, Millis, Offset
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext
from ottla.server.fetch.offset_lookup import EARLIEST, LATEST
from ottla.server.legacy.translation import Legacy
from ottla.server.security.authorization import allowed

SEGMENT_COST: Final = 2
DEBUGGING_CONSUMER: Final = -2
CONSUMER: Final = -1


def decode(version: int, frame: Buffer, offset: int) -> Generator[int, None, Any]:
    return messages.decode_request_in_steps(ApiKey.LIST_OFFSETS, version, memoryview(frame), offset)


def handle(context: RequestContext, request: Any) -> Handling[dict[str, Any]]:
    visible = allowed(context, Operation.DESCRIBE)
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            error = ErrorCode.topic_authorization_failed
            offsets: list[Offset] = []
            if topic.name in visible:
                try:
                    if asked.timestamp < EARLIEST:
                        raise KafkaError(ErrorCode.unsupported_version)
                    partition = context.node.replicas.find(topic.name, asked.partition_index)
                    if request.replica_id != DEBUGGING_CONSUMER:
                        partition.check_leader(NO_LEADER_EPOCH)
                    offsets = yield from _offsets(
                        context, partition, asked.timestamp, asked.max_num_offsets, request.replica_id
                    )
                    error = ErrorCode.none
                except KafkaError as refused:
                    error = refused.code
            rows.append({"partition_index": asked.partition_index, "error_code": error, "old_style_offsets": offsets})
            yield ROW_COST
        topics.append({"name": topic.name, "partitions": rows})
    return {"topics": topics}


def _offsets(
    context: RequestContext, partition: Partition, timestamp: Millis, count: int, replica_id: int
) -> Generator[int, None, list[Offset]]:
    """Raises KafkaError."""
    log = partition.log
    segments, end, start = log.segments, log.log_end_offset, log.log_start_offset
    offsets = [max(segment.base_offset, start) for segment in segments]  # a log may start inside a segment
    if segments[-1].size > 0:
        offsets.append(end)
    if timestamp == EARLIEST:
        until = 1
    elif timestamp == LATEST or timestamp >= context.node.clock.now_ms():
        until = len(offsets)
    else:
        until = 0
        try:
            for number, segment in enumerate(segments, 1):
                yield SEGMENT_COST
                if segment.retention_timestamp() <= timestamp:
                    until = number
        except OSError as error:
            raise KafkaError(ErrorCode.not_leader_or_follower, str(error)) from error
    yield len(segments)
    found = offsets[max(until - max(count, 0), 0) : until][::-1]
    high_watermark = log.high_watermark
    if replica_id == CONSUMER and found and found[0] > high_watermark:
        return [high_watermark, *[offset for offset in found if offset <= high_watermark]]
    return found


def on_error(context: RequestContext, request: Any, error: KafkaError) -> dict[str, Any]:
    topics = []
    for topic in request.topics:
        rows = [
            {"partition_index": asked.partition_index, "error_code": error.code, "old_style_offsets": []}
            for asked in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": rows})
    return {"topics": topics}


LEGACY: Final = Legacy(decode, handle, on_error)
