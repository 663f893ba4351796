"""AlterConfigs, versions 0-2: the given settings replace all that a resource has (KIP-133; KIP-339 replaced it)."""

from __future__ import annotations

from typing import Any

from ottla.controller.configs import refused_by_broker
from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.metadata.image import ConfigResourceType
from ottla.protocol.messages import ApiKey
from ottla.protocol.stepwise import plain
from ottla.server.api import RequestContext, Response, api
from ottla.server.forwarding import to_controller
from ottla.server.long_answers import RowsOf


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    row = {"error_code": error.code, "error_message": error.message}
    return {
        "responses": RowsOf(
            request.resources,
            lambda each: {"resource_type": each.resource_type, "resource_name": each.resource_name, **row},
        )
    }


@api(ApiKey.ALTER_CONFIGS, versions=(0, 2), on_error=on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    asked = await run_yielding(plain(request))
    return {"responses": list((await altered(context, asked)).values())}


async def altered(
    context: RequestContext, asked: dict[str, Any], here: ConfigResourceType | None = None
) -> dict[int, dict[str, Any]]:
    """Rows of the answer by place in the request: what this broker refuses, and what the controller says of the rest.
    Resources of the type `here`, which concern this process alone, have none.

    On a controller's listener there is no broker in between: the settings of any may be altered."""
    node = context.node
    at_broker = context.listener_name not in node.controller_endpoints
    refused = {}
    if at_broker:
        incremental = here is not None
        refused = await run_yielding(
            refused_by_broker(node.image, asked, node.node_id, incremental=incremental, log_dirs=node.config.log_dirs)
        )
    resources = asked["resources"]
    stored = [each for place, each in enumerate(resources) if place not in refused and each["resource_type"] != here]
    answered = {}
    if stored:
        answer = await to_controller(context, {**asked, "resources": stored})
        answered = {(each["resource_type"], each["resource_name"]): each for each in answer["responses"]}
    rows = {}
    for place, each in enumerate(resources):
        resource = {"resource_type": each["resource_type"], "resource_name": each["resource_name"]}
        error = refused.get(place)
        if error is not None:
            rows[place] = {**resource, "error_code": error.code, "error_message": error.message}
        elif resource["resource_type"] != here:
            rows[place] = answered[resource["resource_type"], resource["resource_name"]]
    return rows
