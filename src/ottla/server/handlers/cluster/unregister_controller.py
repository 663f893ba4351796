"""UnregisterController, version 0: the registration of a controller that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.cooperative import run_yielding
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.forwarding import to_controller
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import UnregisterControllerRequest
    from ottla.protocol.schemas.sent import UnregisterControllerResponse


@api(ApiKey.UNREGISTER_CONTROLLER, versions=(0, 0), needs=(cluster(Operation.ALTER, at_controller=True),))
async def handle(context: RequestContext, request: UnregisterControllerRequest) -> UnregisterControllerResponse:
    answer: UnregisterControllerResponse = await to_controller(context, await run_yielding(plain_in_steps(request)))
    return answer
