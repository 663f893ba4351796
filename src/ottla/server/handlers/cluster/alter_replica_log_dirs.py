"""AlterReplicaLogDirs, versions 1-2: move replicas of this broker to other log directories (KIP-113).

The answer comes when the moves have begun; DescribeLogDirs shows how far they are. For a partition that is not here the
directory is kept for when it comes, and the answer is REPLICA_NOT_AVAILABLE, as a reassignment wants it.
"""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.security.permissions import cluster
from ottla.storage.future_logs import check_name

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
    from ottla.protocol.schemas.sent import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )
    from ottla.server.ports import Storing


def on_error(
    context: RequestContext, request: AlterReplicaLogDirsRequest, error: KafkaError
) -> AlterReplicaLogDirsResponse:
    def refused(topic: AlterReplicaLogDirTopic) -> AlterReplicaLogDirTopicResult:
        rows: RowsOf[AlterReplicaLogDirPartitionResult] = RowsOf(
            topic.partitions, lambda number: {"partition_index": number, "error_code": error.code}
        )
        return {"topic_name": topic.name, "partitions": rows}

    return {"results": RowsOf([topic for each in request.dirs for topic in each.topics], refused)}


@api(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), needs=(cluster(Operation.ALTER),), on_error=on_error)
def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> Handling[AlterReplicaLogDirsResponse]:
    node = context.node
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                wanted[TopicPartition(topic.name, number)] = directory.path
                yield 2
    results: dict[str, dict[int, ErrorCode]] = {}
    for key, path in wanted.items():
        rows = results.setdefault(key.topic, {})
        try:
            _move(node, key, path)
            rows[key.partition] = ErrorCode.none
        except KafkaError as error:
            rows[key.partition] = error.code
        if node.audit is not None:
            change = (f"directory of partition {key.partition}", None, path)
            node.audit.administered(context, "TOPIC", key.topic, rows[key.partition], [change])
        yield ROW_COST
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [{"partition_index": number, "error_code": code} for number, code in rows.items()],
            }
            for name, rows in results.items()
        ]
    }


def _move(node: Storing, key: TopicPartition, path: str) -> None:
    check_name(key)
    directory = next((each for each in node.logs.log_dirs if os.path.abspath(each) == path), None)
    if directory is None:
        raise KafkaError(ErrorCode.log_dir_not_found, f"Log dir {path} is not found in the config.")
    if directory not in node.logs.online_dirs:
        raise KafkaError(ErrorCode.kafka_storage_error, f"Log directory {path} is offline")
    if directory in node.logs.cordoned:
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"Log directory {path} is cordoned")
    if key in node.replicas.missing:
        raise KafkaError(ErrorCode.kafka_storage_error, f"Partition {key} is offline")
    partition = node.replicas.get(*key)
    if partition is None:
        node.replicas.preferred_dirs[key] = posixpath.normpath(directory)
        raise KafkaError(ErrorCode.replica_not_available, f"this broker has no replica of {key}")
    node.log_mover().move(partition, directory)
