"""DeleteGroups, versions 0-2: delete empty groups and their offsets (KIP-229)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import Deferred, RequestContext, Response, api


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"results": [{"group_id": group_id, "error_code": error.code} for group_id in request.groups_names]}


@api(ApiKey.DELETE_GROUPS, versions=(0, 2), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Deferred:
    """Every group lives in a shard of its own; the response goes out with the last answer."""
    group_ids = list(dict.fromkeys(request.groups_names))
    deferred = Deferred()
    results: dict[str, ErrorCode] = {}

    def answer(group_id: str, error: ErrorCode) -> None:
        results[group_id] = error
        if len(results) == len(group_ids):
            deferred.complete({"results": [{"group_id": each, "error_code": results[each]} for each in group_ids]})

    for group_id in group_ids:
        try:
            context.node.groups.delete_group(_Answer(group_id, answer), group_id)
        except KafkaError as error:
            answer(group_id, error.code)
    if not group_ids:
        deferred.complete({"results": []})
    return deferred


class _Answer:
    """Waits for one group's result."""

    def __init__(self, group_id: str, answer: Any) -> None:
        self.group_id = group_id
        self.answer = answer

    def complete(self, result: Mapping[str, Any] | KafkaError) -> None:
        self.answer(self.group_id, result.code if isinstance(result, KafkaError) else result["groups"][self.group_id])
