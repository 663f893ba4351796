"""DescribeAcls, versions 1-3 (KIP-140, KIP-290 for pattern types): the ACLs of this node's image that a filter matches.

Needs DESCRIBE on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import AclFilter, Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.security.acls import check_enabled
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeAclsRequest
    from ottla.protocol.schemas.sent import AclDescription, DescribeAclsResource, DescribeAclsResponse

LOOK_COST = 1
LOOKED_AT_ONCE = 200


def _on_error(context: RequestContext, request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return {"error_code": error.code, "error_message": error.message, "resources": ()}


@api(ApiKey.DESCRIBE_ACLS, versions=(1, 3), needs=(cluster(Operation.DESCRIBE),), on_error=_on_error)
def handle(context: RequestContext, request: DescribeAclsRequest) -> Handling[DescribeAclsResponse]:
    check_enabled(context, "No Authorizer is configured on the broker")
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if wanted.unknown_part is not None:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown {wanted.unknown_part}.")
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for number, acl in enumerate(context.node.image.acls.values(), start=1):
        if wanted.matches(acl):
            found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(
                {
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permission_type": acl.permission_type,
                }
            )
        if number % LOOKED_AT_ONCE == 0:
            yield LOOKED_AT_ONCE * LOOK_COST
    rows: list[DescribeAclsResource] = []
    for (kind, name, pattern), acls in found.items():
        rows.append({"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls})
        yield LOOK_COST
    return {"error_code": ErrorCode.none, "error_message": "", "resources": rows}
