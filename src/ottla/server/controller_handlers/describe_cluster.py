"""DescribeCluster at a controller, versions 0-2: the controllers that are reached through this listener (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.controller_handlers.quorum_requests import leader_endpoints
from ottla.server.handlers.cluster.describe_cluster import BROKERS, CONTROLLERS, on_error
from ottla.server.metadata.metadata_view import OPERATIONS_NOT_ASKED
from ottla.server.security.authorization import authorized_cluster_operations
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeClusterRequest
    from ottla.protocol.schemas.sent import DescribeClusterResponse


@api(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), needs=(cluster(Operation.ALTER),), on_error=on_error)
def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    wanted = request.endpoint_type
    if wanted == BROKERS:
        why = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        raise KafkaError(ErrorCode.mismatched_endpoint_type, why)
    if wanted != CONTROLLERS:
        raise KafkaError(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}")
    node = context.node
    found = {each["node_id"]: (each["host"], each["port"]) for each in leader_endpoints(context)}
    for node_id, registration in node.image.controllers.items():
        endpoint = registration.endpoints.get(context.listener_name)
        if endpoint is not None:
            found.setdefault(node_id, (endpoint.host, endpoint.port))
    with_operations = request.include_cluster_authorized_operations
    return {
        "error_message": None,
        "endpoint_type": CONTROLLERS,
        "cluster_id": node.cluster_id,
        "controller_id": node.metadata.quorum.leader_id,
        "brokers": [{"broker_id": node_id, "host": host, "port": port} for node_id, (host, port) in found.items()],
        "cluster_authorized_operations": authorized_cluster_operations(context)
        if with_operations
        else OPERATIONS_NOT_ASKED,
    }
