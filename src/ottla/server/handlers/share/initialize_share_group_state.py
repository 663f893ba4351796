"""InitializeShareGroupState, version 0: a share group begins to read partitions, or an operator has moved it (KIP-932).

Its group coordinator asks, of the share coordinator of each partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.share.requests import InitializeState
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.coordinators.share_state import ask_each, on_error
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateRequestPartitionData,
    )
    from ottla.protocol.schemas.sent import InitializeShareGroupStateResponse


@api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    versions=(0, 0),
    needs=(cluster(Operation.CLUSTER_ACTION),),
    on_error=on_error,
)
def handle(
    context: RequestContext, request: InitializeShareGroupStateRequest
) -> Handling[InitializeShareGroupStateResponse]:
    return ask_each(context, request, "initialize share group state", _read, needs_partitions=False)


def _read(key: SharePartitionKey, row: InitializeShareGroupStateRequestPartitionData) -> InitializeState:
    return InitializeState(key, row.state_epoch, row.start_offset)
