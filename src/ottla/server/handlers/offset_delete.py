"""OffsetDelete, version 0: delete the offsets of topics that no member of the group reads (KIP-496)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey, response_header
from ottla.protocol.offset_delete import encode_response
from ottla.server.api import Deferred, EncodedResponse, RequestContext, api
from ottla.server.coordinator_replies import DeferredReply
from ottla.server.long_answers import count_failures


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

    def finish(result: Mapping[str, Any]) -> EncodedResponse:
        answers = {
            name: [(number, ErrorCode.unknown_topic_or_partition) for number in numbers]
            for name, numbers in unknown.items()
        }
        for (topic, number), error in result["partitions"].items():
            answers.setdefault(topic, []).append((number, error))
        count_failures(context, (error for rows in answers.values() for _, error in rows if error))
        header = response_header(ApiKey.OFFSET_DELETE, context.api_version, context.correlation_id)
        return EncodedResponse([encode_response(ErrorCode.none, answers, header)])

    waiter = DeferredReply(finish)
    context.node.groups.delete_offsets(waiter, request.group_id, known)
    return waiter.deferred
