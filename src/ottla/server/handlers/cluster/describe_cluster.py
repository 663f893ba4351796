"""DescribeCluster, versions 0-2: the brokers that a client on this listener reaches (KIP-700, 919, 1073)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.metadata_view import OPERATIONS_NOT_ASKED, MetadataView
from ottla.server.security.authorization import authorized_cluster_operations
from ottla.server.security.permissions import Refused, of_cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DescribeClusterRequest
    from ottla.protocol.schemas.sent import DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


def on_error(context: RequestContext, request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    return {
        "error_code": error.code,
        "error_message": error.message,
        "endpoint_type": BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "cluster_authorized_operations": OPERATIONS_NOT_ASKED,
    }


NEEDS = (of_cluster(Operation.DESCRIBE, when="for cluster_authorized_operations", refused=Refused.OMITTED),)


@api(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), needs=NEEDS, on_error=on_error)
def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    wanted = request.endpoint_type
    if wanted == CONTROLLERS:
        why = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise KafkaError(ErrorCode.mismatched_endpoint_type, why)
    if wanted != BROKERS:
        raise KafkaError(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}")
    placement = MetadataView(context.node.image, context.listener_name, context.node.lost)
    with_fenced = request.include_fenced_brokers
    brokers = placement.brokers() if with_fenced else placement.alive.values()
    with_operations = request.include_cluster_authorized_operations
    return {
        "error_message": None,
        "endpoint_type": BROKERS,
        "cluster_id": context.node.cluster_id,
        "controller_id": placement.controller_id(context.node.random),
        "brokers": [
            {"broker_id": each.id, "host": each.host, "port": each.port, "rack": each.rack, "is_fenced": each.fenced}
            for each in brokers
        ],
        "cluster_authorized_operations": authorized_cluster_operations(context)
        if with_operations
        else OPERATIONS_NOT_ASKED,
    }
