"""AssignReplicasToDirs, version 0: in which log directories a broker has its replicas (KIP-858)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.decided import decided
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AssignReplicasToDirsRequest
    from ottla.protocol.schemas.sent import AssignReplicasToDirsResponse


@api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions=(0, 0), needs=(cluster(Operation.CLUSTER_ACTION),))
def handle(context: RequestContext, request: AssignReplicasToDirsRequest) -> Awaitable[AssignReplicasToDirsResponse]:
    return decided(context, request)
