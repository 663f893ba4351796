"""PushTelemetry, version 0: the metrics of a client, in OpenTelemetry's format (KIP-714).

What it pushed last is shown at /metrics (`server/http/client_metrics.py`). Whoever pushes decides how much is to be
decompressed and read, so both are bounded (`telemetry.max.bytes`, `ottla.telemetry.otlp`) and never hold up others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.server.api import Handling, RequestContext, api
from ottla.server.clients.telemetry import telemetry_of
from ottla.server.security.permissions import Open

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import PushTelemetryRequest
    from ottla.protocol.schemas.sent import PushTelemetryResponse


@api(ApiKey.PUSH_TELEMETRY, versions=(0, 0), needs=Open("a client tells about itself, as the node has asked it to"))
def handle(context: RequestContext, request: PushTelemetryRequest) -> Handling[PushTelemetryResponse]:
    yield from telemetry_of(context.node).pushed(context, request)
    return {"error_code": ErrorCode.none}
