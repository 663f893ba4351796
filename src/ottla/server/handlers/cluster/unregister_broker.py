"""UnregisterBroker, version 0: a broker that will not come back (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.cooperative import run_yielding
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import to_controller
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import UnregisterBrokerRequest
    from ottla.protocol.schemas.sent import UnregisterBrokerResponse


@api(ApiKey.UNREGISTER_BROKER, versions=(0, 0), needs=(cluster(Operation.ALTER, at_controller=True),))
async def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    answer: UnregisterBrokerResponse = await to_controller(context, await run_yielding(plain_in_steps(request)))
    return answer
