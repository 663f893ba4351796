"""AllocateProducerIds, version 0: a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.decided import decided
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AllocateProducerIdsRequest
    from ottla.protocol.schemas.sent import AllocateProducerIdsResponse


@api(ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), needs=(cluster(Operation.CLUSTER_ACTION),))
def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> Awaitable[AllocateProducerIdsResponse]:
    return decided(context, request)
