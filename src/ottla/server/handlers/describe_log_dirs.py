"""DescribeLogDirs, versions 1-5: sizes of logs by directory, and free space (KIP-113, 827, 1066).

A null list of topics means all logs, an empty one none. Logs that are not here are passed over in silence.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.storage.log import Log


@api(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5))
def handle(context: RequestContext, request: Any) -> Response:
    node = context.node
    logs: Iterable[Log | None] = node.logs
    if request.topics is not None:
        keys = {TopicPartition(each.topic, number) for each in request.topics for number in each.partitions}
        logs = map(node.logs.get, sorted(keys))
    by_directory: dict[str, list[Log]] = defaultdict(list)
    for log in logs:
        if log is not None:
            by_directory[os.path.abspath(os.path.dirname(log.directory))].append(log)
    online = {os.path.abspath(path) for path in node.logs.online_dirs}
    registration = node.image.brokers.get(node.node_id)
    cordoned = () if registration is None else registration.cordoned_log_dirs
    ids = {os.path.abspath(path): directory_id for path, directory_id in node.controller.directory_ids.items()}
    return {
        "results": [
            _directory(context, path, by_directory.get(path, []), is_cordoned=ids.get(path) in cordoned)
            if path in online
            else {"error_code": ErrorCode.kafka_storage_error, "log_dir": path, "topics": []}
            for path in map(os.path.abspath, node.config.log_dirs)
        ],
    }


def _directory(context: RequestContext, path: str, logs: list[Log], *, is_cordoned: bool) -> dict[str, Any]:
    try:
        total, usable = context.node.fs.free_bytes(path)
    except OSError:
        return {"error_code": ErrorCode.kafka_storage_error, "log_dir": path, "topics": []}
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for log in logs:
        topics[log.topic_partition.topic].append(
            {
                "partition_index": log.topic_partition.partition,
                "partition_size": log.size_bytes,
                "offset_lag": max(log.high_watermark - log.log_end_offset, 0),
                "is_future_key": False,
            }
        )
    return {
        "error_code": ErrorCode.none,
        "log_dir": path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": total,
        "usable_bytes": usable,
        "is_cordoned": is_cordoned,
    }
