"""CreateAcls, versions 1-3 (KIP-140, KIP-290 for prefixed patterns): the controller decides, every node enforces.

Needs ALTER on the cluster, which the node that decides checks. Rows of the answer stand for themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import forwarded
from ottla.server.security.acls import check_enabled
from ottla.server.security.authorization import decides_here
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import CreateAclsRequest
    from ottla.protocol.schemas.sent import AclCreationResult, CreateAclsResponse


def _on_error(context: RequestContext, request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    row: AclCreationResult = {"error_code": error.code, "error_message": error.message}
    return {"results": RowsOf(request.creations, lambda creation: row)}


@api(ApiKey.CREATE_ACLS, versions=(1, 3), needs=(cluster(Operation.ALTER, at_controller=True),), on_error=_on_error)
def handle(context: RequestContext, request: CreateAclsRequest) -> Awaitable[CreateAclsResponse]:
    if decides_here(context.node):
        check_enabled(context)
    return forwarded(context, request)
