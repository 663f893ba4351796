"""AlterPartition, versions 2-3: a leader changes the in-sync replicas of its partitions (KIP-497, KIP-903)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.decided import decided
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AlterPartitionRequest
    from ottla.protocol.schemas.sent import AlterPartitionResponse


@api(ApiKey.ALTER_PARTITION, versions=(2, 3), needs=(cluster(Operation.CLUSTER_ACTION),))
def handle(context: RequestContext, request: AlterPartitionRequest) -> Awaitable[AlterPartitionResponse]:
    return decided(context, request)
