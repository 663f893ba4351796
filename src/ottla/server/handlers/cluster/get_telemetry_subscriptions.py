"""GetTelemetrySubscriptions, version 0: which metrics a client is to push, and how often (KIP-714).

Counters are asked for as sums since the client began, not as what was added since the last push, which a restart of the
node would lose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, api
from ottla.server.clients.telemetry import telemetry_of
from ottla.server.security.permissions import Open
from ottla.telemetry.clients import COMPRESSION_TYPES

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import GetTelemetrySubscriptionsRequest
    from ottla.protocol.schemas.sent import GetTelemetrySubscriptionsResponse


@api(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    versions=(0, 0),
    needs=Open("a client asks what it is to tell about itself"),
)
def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    telemetry = telemetry_of(context.node)
    asked: UUID = request.client_instance_id
    instance = telemetry.instance(context, telemetry.new_id() if asked == ZERO_UUID else asked)
    telemetry.clients.get(instance, telemetry.now_s())
    return {
        "error_code": ErrorCode.none,
        "client_instance_id": instance.id,
        "subscription_id": instance.wanted.id,
        "accepted_compression_types": COMPRESSION_TYPES,
        "push_interval": instance.wanted.interval_ms,
        "telemetry_max_bytes": telemetry.clients.bytes_max,
        "delta_temporality": False,
        "requested_metrics": instance.wanted.metrics,
    }
