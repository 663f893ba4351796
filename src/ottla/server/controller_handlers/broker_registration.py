"""BrokerRegistration, versions 0-4: a broker starts (KIP-631; log directories from 2, KIP-858)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.decided import decided
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import BrokerRegistrationRequest
    from ottla.protocol.schemas.sent import BrokerRegistrationResponse


@api(ApiKey.BROKER_REGISTRATION, versions=(0, 4), needs=(cluster(Operation.CLUSTER_ACTION),))
def handle(context: RequestContext, request: BrokerRegistrationRequest) -> Awaitable[BrokerRegistrationResponse]:
    return decided(context, request)
