"""UnregisterController, version 0: the registration of a controller that will not come back."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import UnregisterControllerRequest
    from ottla.protocol.schemas.sent import UnregisterControllerResponse


@api(ApiKey.UNREGISTER_CONTROLLER, versions=(0, 0), needs=(cluster(Operation.ALTER, at_controller=True),))
def handle(context: RequestContext, request: UnregisterControllerRequest) -> Awaitable[UnregisterControllerResponse]:
    return forwarded(context, request)
