"""AlterShareGroupOffsets, version 0: an operator says where an empty share group goes on (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, Offset
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.security.authorization import allowed, authorize, refusal
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AlterShareGroupOffsetsRequest
    from ottla.protocol.schemas.sent import (
        AlterShareGroupOffsetsResponse,
        AlterShareGroupOffsetsResponsePartition,
        AlterShareGroupOffsetsResponseTopic,
    )


def _on_error(
    context: RequestContext, request: AlterShareGroupOffsetsRequest, error: KafkaError
) -> AlterShareGroupOffsetsResponse:
    return {"error_code": error.code, "error_message": error.message or None, "responses": ()}


NEEDS: Final = (
    of_groups(Operation.READ, "group_id", refused=Refused.REQUEST),
    of_topics(Operation.READ, "topics.topic_name"),
)


@api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0), needs=NEEDS, on_error=_on_error)
async def handle(context: RequestContext, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    check_enabled(context, "share")
    authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "The group id is invalid.")
    topics = {
        topic.topic_name: {row.partition_index: row.start_offset for row in topic.partitions}
        for topic in request.topics
    }
    refused = _unauthorized(context, topics)
    rows = await context.node.share.groups.alter_offsets(request.group_id, topics)
    return {"error_code": ErrorCode.none, "error_message": None, "responses": [*rows, *refused]}


def _unauthorized(
    context: RequestContext, topics: dict[str, dict[int, Offset]]
) -> list[AlterShareGroupOffsetsResponseTopic]:
    """The rows of topics that the client may not read, which are removed from `topics`."""
    readable = allowed(context, Operation.READ)
    rows: list[AlterShareGroupOffsetsResponseTopic] = []
    for name in [name for name in topics if name not in readable]:
        error = refusal(context, Operation.READ, ResourceType.TOPIC, name)
        partitions: list[AlterShareGroupOffsetsResponsePartition] = [
            {"partition_index": number, "error_code": error.code, "error_message": error.message}
            for number in topics.pop(name)
        ]
        rows.append({"topic_name": name, "topic_id": ZERO_UUID, "partitions": partitions})
    return rows
