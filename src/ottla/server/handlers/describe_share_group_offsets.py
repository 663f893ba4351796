"""DescribeShareGroupOffsets, versions 0-1: how far share groups have come (KIP-932). Version 1 says how many records
are still to be delivered (KIP-1226)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.drivers.cooperative import scheduler_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import RowsOf, encoded
from ottla.server.share_groups import check_enabled

GROUPS_AT_ONCE: Final = 16


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"groups": RowsOf(request.groups, lambda group: _failed(group.group_id, error))}


def _failed(group_id: str, error: KafkaError) -> dict[str, Any]:
    return {"group_id": group_id, "topics": (), "error_code": error.code, "error_message": error.message or None}


@api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    check_enabled(context)
    rows: list[dict[str, Any]] = []
    for number, group in enumerate(request.groups, start=1):
        if number % GROUPS_AT_ONCE == 0:
            await scheduler_of(asyncio.get_running_loop()).next_slice()
        wanted = None
        if group.topics is not None:
            wanted = {topic.topic_name: topic.partitions for topic in group.topics}
        try:
            topics = await context.node.share.groups.describe_offsets(group.group_id, wanted)
            rows.append({"group_id": group.group_id, "topics": topics, "error_code": ErrorCode.none})
        except KafkaError as error:
            rows.append(_failed(group.group_id, error))
    return await encoded(context, {"groups": rows}, "groups")
