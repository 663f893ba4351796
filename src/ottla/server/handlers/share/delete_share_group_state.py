"""DeleteShareGroupState, version 0: a share group is deleted, or does not read these partitions any more (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.share.requests import DeleteState
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.coordinators.share_state import ask_each, on_error
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DeleteShareGroupStateRequest, DeleteShareGroupStateRequestPartitionData
    from ottla.protocol.schemas.sent import DeleteShareGroupStateResponse


@api(ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0), needs=(cluster(Operation.CLUSTER_ACTION),), on_error=on_error)
def handle(context: RequestContext, request: DeleteShareGroupStateRequest) -> Handling[DeleteShareGroupStateResponse]:
    return ask_each(context, request, "delete share group state", _read)


def _read(key: SharePartitionKey, row: DeleteShareGroupStateRequestPartitionData) -> DeleteState:
    return DeleteState(key)
