"""What most handlers of a controller do: hand the request to the active controller, and answer with what it decided."""

from __future__ import annotations

from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.server.api import RequestContext


async def decided(context: RequestContext, request: Any) -> Any:
    """The response, once its records are committed. Raises KafkaError, NOT_CONTROLLER among them."""
    controller = context.node.metadata.controller
    if controller is None:
        raise KafkaError(ErrorCode.not_controller)
    return (await controller.request(ApiKey(context.api_key), await run_yielding(plain_in_steps(request)))).response
