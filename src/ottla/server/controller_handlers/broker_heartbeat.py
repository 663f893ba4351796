"""BrokerHeartbeat, versions 0-2: a broker lives, has so much metadata, wants to be (un)fenced or to stop (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.decided import decided
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import BrokerHeartbeatRequest
    from ottla.protocol.schemas.sent import BrokerHeartbeatResponse


@api(ApiKey.BROKER_HEARTBEAT, versions=(0, 2), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    response: BrokerHeartbeatResponse = await decided(context, request)
    watch = context.node.metadata.watch
    if watch is not None and context.session is not None:
        watch.heard(request.broker_id, request.broker_epoch, context.session)
    return response
