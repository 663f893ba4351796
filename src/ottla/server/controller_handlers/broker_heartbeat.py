"""BrokerHeartbeat, versions 0-2: a broker lives, has so much metadata, wants to be (un)fenced or to stop (KIP-631)."""

from __future__ import annotations

from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, Response, api
from ottla.server.controller_handlers.decided import decided
from ottla.server.permissions import cluster


@api(ApiKey.BROKER_HEARTBEAT, versions=(0, 2), needs=(cluster(Operation.CLUSTER_ACTION),))
async def handle(context: RequestContext, request: Any) -> Response:
    response = await decided(context, await run_yielding(plain_in_steps(request)))
    watch = context.node.metadata.watch
    if watch is not None and context.session is not None:
        watch.heard(request.broker_id, request.broker_epoch, context.session)
    return response
