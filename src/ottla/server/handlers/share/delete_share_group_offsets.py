"""DeleteShareGroupOffsets, version 0: how far an empty share group has come in topics is dropped (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.security.authorization import allowed, authorize, refusal
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DeleteShareGroupOffsetsRequest
    from ottla.protocol.schemas.sent import DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic


def _on_error(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest, error: KafkaError
) -> DeleteShareGroupOffsetsResponse:
    return {"error_code": error.code, "error_message": error.message or None, "responses": ()}


NEEDS: Final = (
    of_groups(Operation.DELETE, "group_id", refused=Refused.REQUEST),
    of_topics(Operation.READ, "topics.topic_name"),
)


@api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0), needs=NEEDS, on_error=_on_error)
async def handle(context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    check_enabled(context, "share")
    authorize(context, Operation.DELETE, ResourceType.GROUP, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "The group id is invalid.")
    readable = allowed(context, Operation.READ)
    names: list[str] = []
    refused: list[DeleteShareGroupOffsetsResponseTopic] = []
    for topic in request.topics:
        if topic.topic_name in readable:
            names.append(topic.topic_name)
        else:
            refused.append(_refused(context, topic.topic_name))
    rows = await context.node.share.groups.delete_offsets(request.group_id, names)
    return {"error_code": ErrorCode.none, "error_message": None, "responses": [*refused, *rows]}


def _refused(context: RequestContext, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    error = refusal(context, Operation.READ, ResourceType.TOPIC, name)
    return {
        "topic_name": name,
        "topic_id": ZERO_UUID,
        "error_code": error.code,
        "error_message": error.message,
    }
