"""DeleteShareGroupState, version 0: a share group is deleted, or does not read these partitions any more (KIP-932)."""

from __future__ import annotations

from typing import Any

from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.server.api import Handling, RequestContext, api
from ottla.server.share_state import StateReply, ask_each, on_error


@api(ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Handling:
    coordinator = context.node.share_coordinator

    def ask(waiter: StateReply, key: SharePartitionKey, row: Any) -> None:
        coordinator.delete(waiter, key)

    return ask_each(request, "delete share group state", ask)
