"""ApiVersions, versions 0-5 (KIP-35, KIP-511, KIP-584): what this listener serves, and the node's features.

Answers are derived from the table of the listener's handlers; of what a broker forwards, the versions that its active
controller serves too, once that is known; client telemetry once there is a subscription; APIs that Kafka does not have
to Ottla's own commands and mirrors, and to nodes at a controller. From version 3 on the client names its software; odd
names are refused as Kafka does (INVALID_REQUEST). Version 3 hides features whose lowest level is 0, which old clients
cannot parse. From version 5 on the client may name the cluster and the node that it means (KIP-1242); another node
answers REBOOTSTRAP_REQUIRED. A controller's listener does so too, where Kafka's answers anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.metadata.features import SUPPORTED
from ottla.model import UNKNOWN_SOFTWARE
from ottla.protocol.messages import ApiKey
from ottla.server.api import OF_BROKERS, RequestContext, api
from ottla.server.connections.client_facts import introduced
from ottla.server.handlers import FORWARDABLE, TABLE
from ottla.server.security.permissions import Open

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ApiVersionsRequest
    from ottla.protocol.schemas.sent import ApiVersionsResponse
    from ottla.server.clients.telemetry import NodeTelemetry
    from ottla.server.ports import Member

TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})

OWN_SOFTWARE = frozenset({"ottla-cli", "ottla-console", "ottla-mirror"})
"""Software that is told of the APIs that Kafka does not have."""

NODE_SOFTWARE = "ottla"
"""How nodes introduce themselves (`NodeConnection`): a broker forwards some of those APIs."""

NO_NODE = -1
"""The node that a client names that means no certain one."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, versions=(0, 5), needs=Open("a client has to know the versions before it can log in"))
def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    version = context.api_version
    if version >= 5 and (request.cluster_id is None) != (request.node_id == NO_NODE):
        return {"error_code": ErrorCode.invalid_request}
    if version >= 3:
        name, software_version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(software_version):
            return {"error_code": ErrorCode.invalid_request}
        introduced(context, name, software_version)
    else:
        introduced(context, UNKNOWN_SOFTWARE, UNKNOWN_SOFTWARE)
    if version >= 5 and request.cluster_id is not None and _is_other(context.node, request):
        return {"error_code": ErrorCode.rebootstrap_required}
    image = context.node.image
    apis = OF_BROKERS if context.session is None else context.session.apis
    of_broker = ApiKey.PRODUCE in apis.table
    is_own = version >= 3 and (
        request.client_software_name in OWN_SOFTWARE
        or (not of_broker and request.client_software_name == NODE_SOFTWARE)
    )
    table = apis.table if is_own else apis.advertised
    ranges = ((key, served.min_version, served.max_version) for key, served in table.items())
    if not offers_telemetry(context.node):
        ranges = (each for each in ranges if each[0] not in TELEMETRY)
    elsewhere = context.node.metadata.controller_versions
    if elsewhere and of_broker:
        ranges = (each for key, low, high in ranges if (each := _served_by_both(key, low, high, elsewhere)) is not None)
    return {
        "error_code": ErrorCode.none,
        "api_keys": [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in ranges],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or version >= 4
        ],
        "finalized_features_epoch": image.offset,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in image.features.items()
        ],
        "zk_migration_ready": False,
    }


def _is_other(node: Member, meant: ApiVersionsRequest) -> bool:
    """Whether the client means another node: this one has got its address."""
    return meant.cluster_id != node.cluster_id or meant.node_id != node.node_id


def offers_telemetry(node: Member) -> bool:
    """Whether clients are told that they can push metrics: once there is a subscription."""
    telemetry: NodeTelemetry | None = vars(node).get("telemetry")
    return telemetry is not None and bool(telemetry.clients.subscriptions)


def _served_by_both(
    key: int, low: int, high: int, elsewhere: Mapping[int, tuple[int, int]]
) -> tuple[int, int, int] | None:
    """None for what a controller does not serve at all (`ApiVersionsResponse.intersectForwardableApis`)."""
    if key not in FORWARDABLE:
        return key, low, high
    other_low, other_high = elsewhere.get(key, (0, -1))
    first = TABLE[key].min_version if key in TABLE else low
    if other_low > first:  # what is below is removed, and forwarded as the first that is not
        low = other_low
    high = min(high, other_high)
    return (key, low, high) if low <= high else None
