"""WriteShareGroupState, versions 0-1: the leader of partitions says what has changed in the deliveries to a share group
(KIP-932). Version 1 counts those that are done with (KIP-1226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.share.requests import WriteState
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import StateBatch
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.coordinators.share_state import ask_each, on_error
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import WriteShareGroupStateRequest, WriteShareGroupStateRequestPartitionData
    from ottla.protocol.schemas.sent import WriteShareGroupStateResponse


@api(ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1), needs=(cluster(Operation.CLUSTER_ACTION),), on_error=on_error)
def handle(context: RequestContext, request: WriteShareGroupStateRequest) -> Handling[WriteShareGroupStateResponse]:
    return ask_each(context, request, "write share group state", _read)


def _read(key: SharePartitionKey, row: WriteShareGroupStateRequestPartitionData) -> WriteState:
    batches = [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in row.state_batches
    ]
    complete = row.delivery_complete_count
    return WriteState(key, row.state_epoch, row.leader_epoch, row.start_offset, batches, complete)
