"""DescribeLogDirs, versions 1-5: sizes of logs by directory, and free space (KIP-113, 827, 1066).

A null list of topics means all logs, an empty one none. Logs that are not here are passed over in silence.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.security.permissions import cluster
from ottla.storage.log.log import Log

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeLogDirsRequest
    from ottla.protocol.schemas.sent import DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult


def on_error(context: RequestContext, request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    return {"error_code": error.code, "results": ()}


@api(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), needs=(cluster(Operation.DESCRIBE),), on_error=on_error)
def handle(context: RequestContext, request: DescribeLogDirsRequest) -> Handling[DescribeLogDirsResponse]:
    node = context.node
    logs: Iterable[Log] = list(node.logs)
    if request.topics is not None:
        asked = {}
        for topic in request.topics:
            for number in topic.partitions:
                log = node.logs.get(TopicPartition(topic.topic, number))
                if log is not None:
                    asked[log.topic_partition] = log
                yield 2
        logs = [asked[key] for key in sorted(asked)]
    by_directory: dict[str, list[Log]] = defaultdict(list)
    wanted = {log.topic_partition for log in logs}
    for log in (*logs, *(each for each in node.logs.futures if each.topic_partition in wanted)):
        by_directory[os.path.abspath(os.path.dirname(log.directory))].append(log)
        yield 2
    online = {os.path.abspath(path) for path in node.logs.online_dirs}
    registration = node.image.brokers.get(node.node_id)
    cordoned = () if registration is None else registration.cordoned_log_dirs
    ids = {os.path.abspath(path): directory_id for path, directory_id in node.metadata.directory_ids.items()}
    results: list[DescribeLogDirsResult] = []
    for path in map(os.path.abspath, node.config.log_dirs):
        if path in online:
            found = by_directory.get(path, [])
            results.append((yield from _directory(context, path, found, is_cordoned=ids.get(path) in cordoned)))
        else:
            results.append({"error_code": ErrorCode.kafka_storage_error, "log_dir": path, "topics": []})
    return {"results": results}


def _directory(
    context: RequestContext, path: str, logs: list[Log], *, is_cordoned: bool
) -> Handling[DescribeLogDirsResult]:
    try:
        total, usable = context.node.fs.free_bytes(path)
    except OSError:
        return {"error_code": ErrorCode.kafka_storage_error, "log_dir": path, "topics": []}
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    served = context.node.logs
    for log in logs:
        current = served.get(log.topic_partition)
        is_future = current is not None and log is served.futures.get(log.topic_partition)
        end = log.high_watermark if current is None or not is_future else current.log_end_offset
        topics[log.topic_partition.topic].append(
            {
                "partition_index": log.topic_partition.partition,
                "partition_size": log.size_bytes,
                "offset_lag": max(end - log.log_end_offset, 0),
                "is_future_key": is_future,
            }
        )
        yield ROW_COST
    return {
        "error_code": ErrorCode.none,
        "log_dir": path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": total,
        "usable_bytes": usable,
        "is_cordoned": is_cordoned,
    }
