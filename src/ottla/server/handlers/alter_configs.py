"""AlterConfigs, versions 0-2: the given settings replace all that a resource has (KIP-133; KIP-339 replaced it)."""

from __future__ import annotations

from typing import Any

from ottla.controller.configs import alter_configs
from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    row = {"error_code": error.code, "error_message": error.message}
    return {
        "responses": [
            {"resource_type": each.resource_type, "resource_name": each.resource_name, **row}
            for each in request.resources
        ]
    }


@api(ApiKey.ALTER_CONFIGS, versions=(0, 2), on_error=on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    asked = await run_yielding(plain(request))
    node = context.node
    return await node.controller.submit(lambda image, now: alter_configs(image, asked, node.config, node.node_id))
