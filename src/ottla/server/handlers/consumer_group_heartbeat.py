"""ConsumerGroupHeartbeat, versions 0-1: refused with UNSUPPORTED_VERSION, as Kafka does where `group.version` is 0.

This version has no groups of KIP-848. It says so here, since clients with `group.protocol=consumer` take this answer
for a fatal error, while librdkafka waits for ever for a broker that does not know the request.
"""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"error_code": error.code, "member_epoch": 0, "heartbeat_interval": 0}


@api(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), on_error=_on_error)
def handle(context: RequestContext, request: Any) -> Response:
    raise KafkaError(ErrorCode.unsupported_version)
