"""OffsetFetch, versions 1-10: the committed offsets of a group, or from version 8 of several (KIP-709).

Null topics ask for all (since 2). Version 7 adds require_stable (KIP-447), 9 a member's epoch, which classic groups do
not look at, 10 topic ids instead of names (KIP-848). An offset that is not there is -1, also in an unknown group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.protocol.group_responses import encode_offset_fetch
from ottla.protocol.messages import ApiKey, response_header
from ottla.server.api import EncodedResponse, RequestContext, Response, api


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    if context.api_version < 8:
        return _encoded(context, {"topics": _failed(request.topics, error.code), "error_code": error.code})
    groups = [{"group_id": group.group_id, "topics": [], "error_code": error.code} for group in request.groups]
    return _encoded(context, {"groups": groups})


@api(ApiKey.OFFSET_FETCH, versions=(1, 10), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Response:
    require_stable = getattr(request, "require_stable", False)
    if context.api_version >= 8:
        groups = [_fetch(context, group, require_stable) for group in request.groups]
        response: dict[str, Any] = {"groups": groups}
    else:
        response = _fetch(context, request, require_stable)
        groups = [response]
    for group in groups:
        _count_errors(context, group)
    return _encoded(context, response)


def _count_errors(context: RequestContext, group: dict[str, Any]) -> None:
    failed = context.node.metrics.api(ApiKey.OFFSET_FETCH).failed
    if group["error_code"]:
        failed(group["error_code"].name.upper())
    for topic in group["topics"]:
        for each in topic["partitions"]:
            if each["error_code"]:
                failed(each["error_code"].name.upper())


def _encoded(context: RequestContext, response: dict[str, Any]) -> EncodedResponse:
    header = response_header(ApiKey.OFFSET_FETCH, context.api_version, context.correlation_id)
    return EncodedResponse([encode_offset_fetch(context.api_version, response, header)])


def _fetch(context: RequestContext, group: Any, require_stable: bool) -> dict[str, Any]:
    """One group's answer. Before version 8 `group` is the whole request, and the answer the whole response."""
    groups = context.node.groups
    try:
        if group.topics is None:
            topics = _with_ids(context, groups.fetch_offsets(group.group_id, None, require_stable))
        else:
            wanted, unknown = _resolve(context, group.topics)
            topics = groups.fetch_offsets(group.group_id, wanted, require_stable) + unknown
    except KafkaError as error:
        topics = _failed(group.topics, error.code) if context.api_version == 1 else []
        return {"group_id": group.group_id, "topics": topics, "error_code": error.code}
    return {"group_id": group.group_id, "topics": topics, "error_code": ErrorCode.none}


def _resolve(
    context: RequestContext, topics: Sequence[Any]
) -> tuple[list[tuple[str, UUID, Sequence[int]]], list[dict[str, Any]]]:
    """What to ask the coordinator for, and the answers for topic ids that nobody has."""
    if context.api_version < 10:
        return [(topic.name, ZERO_UUID, topic.partition_indexes) for topic in topics], []
    wanted, unknown = [], []
    for topic in topics:
        known = context.node.image.topic_by_id(topic.topic_id or ZERO_UUID)
        if known is None:
            unknown.append(_failed_topic(topic, ErrorCode.unknown_topic_id))
        else:
            wanted.append((known.name, known.id, topic.partition_indexes))
    return wanted, unknown


def _with_ids(context: RequestContext, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In version 10 topics are known by their ids, so that those that are gone can not be told."""
    if context.api_version < 10:
        return topics
    found = []
    for topic in topics:
        known = context.node.image.topic(topic["name"])
        if known is not None:
            found.append({**topic, "topic_id": known.id})
    return found


def _failed(topics: Sequence[Any] | None, error: ErrorCode) -> list[dict[str, Any]]:
    return [_failed_topic(topic, error) for topic in topics or ()]


def _failed_topic(topic: Any, error: ErrorCode) -> dict[str, Any]:
    return {
        "name": getattr(topic, "name", ""),
        "topic_id": getattr(topic, "topic_id", None),
        "partitions": [
            {
                "partition_index": number,
                "committed_offset": -1,
                "committed_leader_epoch": -1,
                "metadata": "",
                "error_code": error,
            }
            for number in topic.partition_indexes
        ],
    }
