"""IncrementalAlterConfigs, versions 0-1: set, delete, append to and subtract from single settings (KIP-339).

Settings go to the metadata log. Log levels of this process (BROKER_LOGGER, KIP-412) last as long as it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.metadata.image import ConfigResourceType
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.handlers.configs import alter_configs
from ottla.server.handlers.configs.alter_configs import altered, on_error
from ottla.server.log_levels import alter_log_levels
from ottla.server.security.permissions import Refused, of_cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas import received, sent

NEEDS = (
    *alter_configs.NEEDS,
    of_cluster(Operation.CLUSTER_ACTION, when="for log levels of a controller", refused=Refused.ROW),
)


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), needs=NEEDS, on_error=on_error)
async def handle(
    context: RequestContext, request: received.IncrementalAlterConfigsRequest
) -> sent.IncrementalAlterConfigsResponse:
    asked: sent.IncrementalAlterConfigsRequest = await run_yielding(plain_in_steps(request))
    rows = await altered(context, asked, ConfigResourceType.BROKER_LOGGER)
    responses = [
        rows[place] if place in rows else _logger_row(context, each, asked["validate_only"])
        for place, each in enumerate(asked["resources"])
    ]
    return {"responses": responses}


def _logger_row(
    context: RequestContext, resource: sent.IncrementalAlterConfigsRequestAlterConfigsResource, validate_only: bool
) -> sent.AlterConfigsResourceResponse:
    node = context.node
    row: sent.AlterConfigsResourceResponse = {
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
    }
    try:
        alter_log_levels(node.node_id, resource, validate_only=validate_only)
        if node.authorizer is not None:
            node.authorizer.changed()  # what is remembered is not logged
        if node.audit is not None and not validate_only:
            levels = [(f"level of {each['name']}", None, each["value"]) for each in resource["configs"]]
            node.audit.administered(context, "BROKER_LOGGER", resource["resource_name"], 0, levels)
    except KafkaError as error:
        return {**row, "error_code": error.code, "error_message": error.message}
    return {**row, "error_message": None}
