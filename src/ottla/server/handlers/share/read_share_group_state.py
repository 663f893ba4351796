"""ReadShareGroupState, version 0: the new leader of partitions asks how far a share group has come in them (KIP-932).

From then on leaders of older epochs are fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.share.requests import ReadState
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.coordinators.share_state import ask_each, on_error
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ReadShareGroupStateRequest, ReadShareGroupStateRequestPartitionData
    from ottla.protocol.schemas.sent import ReadShareGroupStateResponse


@api(ApiKey.READ_SHARE_GROUP_STATE, versions=(0, 0), needs=(cluster(Operation.CLUSTER_ACTION),), on_error=on_error)
def handle(context: RequestContext, request: ReadShareGroupStateRequest) -> Handling[ReadShareGroupStateResponse]:
    return ask_each(context, request, "read share group state", _read)


def _read(key: SharePartitionKey, row: ReadShareGroupStateRequestPartitionData) -> ReadState:
    return ReadState(key, row.leader_epoch)
