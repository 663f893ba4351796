"""ControllerRegistration, version 0: where a controller is reached and what it supports (KIP-919)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.decided import decided
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ControllerRegistrationRequest
    from ottla.protocol.schemas.sent import ControllerRegistrationResponse


@api(ApiKey.CONTROLLER_REGISTRATION, versions=(0, 0), needs=(cluster(Operation.CLUSTER_ACTION),))
def handle(
    context: RequestContext, request: ControllerRegistrationRequest
) -> Awaitable[ControllerRegistrationResponse]:
    return decided(context, request)
