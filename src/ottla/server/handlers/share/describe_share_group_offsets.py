"""DescribeShareGroupOffsets, versions 0-1: how far share groups have come (KIP-932). Version 1 says how many records
are still to be delivered (KIP-1226)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.drivers.cooperative import scheduler_of
from ottla.drivers.coordinators.share_groups import NOTHING_KNOWN
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.security.authorization import allowed, authorize, refusal
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestTopic
    from ottla.protocol.schemas.sent import (
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
        DescribeShareGroupOffsetsResponsePartition,
        DescribeShareGroupOffsetsResponseTopic,
    )

GROUPS_AT_ONCE: Final = 16


def _on_error(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest, error: KafkaError
) -> DescribeShareGroupOffsetsResponse:
    return {"groups": RowsOf(request.groups, lambda group: _failed(group.group_id, error))}


def _failed(group_id: str, error: KafkaError) -> DescribeShareGroupOffsetsResponseGroup:
    return {"group_id": group_id, "topics": (), "error_code": error.code, "error_message": error.message or None}


NEEDS: Final = (
    of_groups(Operation.DESCRIBE, "groups.group_id"),
    of_topics(Operation.DESCRIBE, "groups.topics.topic_name", when="where topics are named"),
    of_topics(Operation.DESCRIBE, "groups.topics", when="where all are asked for", refused=Refused.OMITTED),
)


def _refused(
    context: RequestContext, topic: DescribeShareGroupOffsetsRequestTopic
) -> DescribeShareGroupOffsetsResponseTopic:
    error = refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name)
    row: DescribeShareGroupOffsetsResponsePartition = {
        **NOTHING_KNOWN,
        "error_code": error.code,
        "error_message": error.message,
    }
    rows: list[DescribeShareGroupOffsetsResponsePartition] = [
        {"partition_index": number, **row} for number in topic.partitions
    ]
    return {"topic_name": topic.topic_name, "topic_id": ZERO_UUID, "partitions": rows}


@api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), needs=NEEDS, on_error=_on_error)
async def handle(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    check_enabled(context, "share")
    rows: list[DescribeShareGroupOffsetsResponseGroup] = []
    for number, group in enumerate(request.groups, start=1):
        if number % GROUPS_AT_ONCE == 0:
            await scheduler_of(asyncio.get_running_loop()).next_slice()
        visible = allowed(context, Operation.DESCRIBE, log_denial=group.topics is not None)
        wanted: dict[str, Sequence[int]] | None = None
        refused: list[DescribeShareGroupOffsetsResponseTopic] = []
        try:
            authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
            if group.topics is not None:
                wanted = {each.topic_name: each.partitions for each in group.topics if each.topic_name in visible}
                refused = [_refused(context, each) for each in group.topics if each.topic_name not in visible]
            topics = await context.node.share.groups.describe_offsets(group.group_id, wanted)
            if wanted is None:
                topics = [each for each in topics if each["topic_name"] in visible]
            topics += refused
            rows.append({"group_id": group.group_id, "topics": topics, "error_code": ErrorCode.none})
        except KafkaError as error:
            rows.append(_failed(group.group_id, error))
    return {"groups": rows}
