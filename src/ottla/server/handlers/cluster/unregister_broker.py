"""UnregisterBroker, version 0: a broker that will not come back (KIP-631)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import UnregisterBrokerRequest
    from ottla.protocol.schemas.sent import UnregisterBrokerResponse


@api(ApiKey.UNREGISTER_BROKER, versions=(0, 0), needs=(cluster(Operation.ALTER, at_controller=True),))
def handle(context: RequestContext, request: UnregisterBrokerRequest) -> Awaitable[UnregisterBrokerResponse]:
    return forwarded(context, request)
