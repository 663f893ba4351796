"""DeleteAcls, versions 1-3 (KIP-140, KIP-290 for pattern types): all ACLs that any of the filters matches.

Needs ALTER on the cluster, which the node that decides checks. The answer has the ACLs that are gone, filter by filter.
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
    from ottla.protocol.schemas.received import DeleteAclsRequest
    from ottla.protocol.schemas.sent import DeleteAclsFilterResult, DeleteAclsResponse


def _on_error(context: RequestContext, request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    row: DeleteAclsFilterResult = {"error_code": error.code, "error_message": error.message, "matching_acls": ()}
    return {"filter_results": RowsOf(request.filters, lambda each: row)}


@api(ApiKey.DELETE_ACLS, versions=(1, 3), needs=(cluster(Operation.ALTER, at_controller=True),), on_error=_on_error)
def handle(context: RequestContext, request: DeleteAclsRequest) -> Awaitable[DeleteAclsResponse]:
    if decides_here(context.node):
        check_enabled(context)
    return forwarded(context, request)
