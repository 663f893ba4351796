"""What most handlers of a controller do: hand the request to the active controller, and answer with what it decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext


async def decided(context: RequestContext, request: Mapping[str, Any]) -> Any:
    """The response, once its records are committed. Raises KafkaError, NOT_CONTROLLER among them."""
    controller = context.node.metadata.controller
    if controller is None:
        raise KafkaError(ErrorCode.not_controller)
    return (await controller.request(ApiKey(context.api_key), request)).response
