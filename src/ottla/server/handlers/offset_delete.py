"""OffsetDelete, version 0: forget offsets of topics that no member of the group reads (KIP-496)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import Deferred, RequestContext, api
from ottla.server.waiting import Finishing


@api(ApiKey.OFFSET_DELETE, versions=(0, 0))
def handle(context: RequestContext, request: Any) -> Deferred:
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    image = context.node.image
    unknown: dict[str, list[int]] = {}
    known: dict[str, list[int]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            exists = image.partition(topic.name, partition.partition_index) is not None
            (known if exists else unknown).setdefault(topic.name, []).append(partition.partition_index)

    def finish(result: Mapping[str, Any]) -> Mapping[str, Any]:
        answers = {
            name: [(number, ErrorCode.unknown_topic_or_partition) for number in numbers]
            for name, numbers in unknown.items()
        }
        for (topic, number), error in result["partitions"].items():
            answers.setdefault(topic, []).append((number, error))
        return {
            "error_code": ErrorCode.none,
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": number, "error_code": error} for number, error in partitions],
                }
                for topic, partitions in answers.items()
            ],
        }

    waiter = Finishing(finish)
    context.node.groups.delete_offsets(waiter, request.group_id, known)
    return waiter.deferred
