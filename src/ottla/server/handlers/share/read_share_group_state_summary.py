"""ReadShareGroupStateSummary, versions 0-1: how far a share group has come, for operators (KIP-932). Version 1 says how
many deliveries behind the start offset are done with (KIP-1226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.share.requests import SummarizeState
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.coordinators.share_state import ask_each, on_error
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryRequestPartitionData,
    )
    from ottla.protocol.schemas.sent import ReadShareGroupStateSummaryResponse


@api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    versions=(0, 1),
    needs=(cluster(Operation.CLUSTER_ACTION),),
    on_error=on_error,
)
def handle(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> Handling[ReadShareGroupStateSummaryResponse]:
    return ask_each(context, request, "read share group state summary", _read)


def _read(key: SharePartitionKey, row: ReadShareGroupStateSummaryRequestPartitionData) -> SummarizeState:
    return SummarizeState(key, row.leader_epoch)
