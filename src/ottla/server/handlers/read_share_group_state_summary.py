"""ReadShareGroupStateSummary, versions 0-1: how far a share group has come, for operators (KIP-932). Version 1 says how
many deliveries behind the start offset are done with (KIP-1226)."""

from __future__ import annotations

from typing import Any

from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.server.api import Handling, RequestContext, api
from ottla.server.share_state import StateReply, ask_each, on_error


@api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=(0, 1), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Handling:
    coordinator = context.node.share_coordinator

    def ask(waiter: StateReply, key: SharePartitionKey, row: Any) -> None:
        coordinator.summary(waiter, key)

    return ask_each(request, "read share group state summary", ask)
