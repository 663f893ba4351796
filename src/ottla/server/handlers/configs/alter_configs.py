"""AlterConfigs, versions 0-2: the given settings replace all that a resource has (KIP-133; KIP-339 replaced it)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.controller.configs import changed_by, refused_by_broker
from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata.forwarding import to_controller
from ottla.server.security.authorization import authorize_cluster, authorize_config, decides_here
from ottla.server.security.permissions import Need, Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas import received, sent

    _Request: TypeAlias = sent.AlterConfigsRequest | sent.IncrementalAlterConfigsRequest
    _Resource: TypeAlias = (
        sent.AlterConfigsRequestAlterConfigsResource | sent.IncrementalAlterConfigsRequestAlterConfigsResource
    )


def on_error(
    context: RequestContext, request: received.AlterConfigsRequest, error: KafkaError
) -> sent.AlterConfigsResponse:
    row: sent.AlterConfigsResourceResponse = {"error_code": error.code, "error_message": error.message}
    return {
        "responses": RowsOf(
            request.resources,
            lambda each: {"resource_type": each.resource_type, "resource_name": each.resource_name, **row},
        )
    }


NEEDS: Final = (
    of_topics(Operation.ALTER_CONFIGS, "resources.resource_name", at_controller=True),
    of_groups(Operation.ALTER_CONFIGS, "resources.resource_name"),
    Need(
        Operation.ALTER_CONFIGS,
        ResourceType.CLUSTER,
        when="for settings of brokers, loggers and client metrics",
        refused=Refused.ROW,
    ),
)


@api(ApiKey.ALTER_CONFIGS, versions=(0, 2), needs=NEEDS, on_error=on_error)
async def handle(context: RequestContext, request: received.AlterConfigsRequest) -> sent.AlterConfigsResponse:
    asked: sent.AlterConfigsRequest = await run_yielding(plain_in_steps(request))
    return {"responses": list((await altered(context, asked)).values())}


async def altered(
    context: RequestContext,
    asked: _Request,
    here: ConfigResourceType | None = None,
) -> dict[int, sent.AlterConfigsResourceResponse]:
    """Rows of the answer by place in the request: what this broker refuses, and what the controller says of the rest.
    Resources of the type `here`, which concern this process alone, have none.

    On a controller's listener there is no broker in between: the settings of any may be altered."""
    node = context.node
    at_broker = context.listener_name not in node.controller_endpoints
    resources = asked["resources"]
    refused = await run_yielding(_unauthorized(context, resources, at_broker=at_broker))
    if at_broker:
        places = [place for place in range(len(resources)) if place not in refused]
        checked: Mapping[str, Any] = asked
        if refused:
            checked = {**asked, "resources": [resources[place] for place in places]}
        incremental = here is not None
        found = await run_yielding(
            refused_by_broker(node.image, checked, node.node_id, incremental=incremental, log_dirs=node.config.log_dirs)
        )
        if node.tls is not None:
            found = {**await node.tls.refusals(node.image, checked, node.node_id, incremental=incremental), **found}
        found = {**_refused_logins(node.image, checked, incremental=incremental), **found}
        if any(listener.authentication is not None for listener in node.listeners):
            from ottla.server.security import dynamic_logins  # most nodes do without

            found = {**dynamic_logins.refusals(node, node.image, checked, incremental=incremental), **found}
        refused.update((places[position], error) for position, error in found.items())
    stored = [each for place, each in enumerate(resources) if place not in refused and each["resource_type"] != here]
    answered = {}
    if stored:
        answer: sent.AlterConfigsResponse = await to_controller(context, {**asked, "resources": stored})
        answered = {(row["resource_type"], row["resource_name"]): row for row in answer["responses"]}
    rows: dict[int, sent.AlterConfigsResourceResponse] = {}
    for place, each in enumerate(resources):
        resource: sent.AlterConfigsResourceResponse = {
            "resource_type": each["resource_type"],
            "resource_name": each["resource_name"],
        }
        error = refused.get(place)
        if error is not None:
            rows[place] = {**resource, "error_code": error.code, "error_message": error.message}
        elif resource["resource_type"] != here:
            rows[place] = answered[resource["resource_type"], resource["resource_name"]]
    return rows


def _refused_logins(image: MetadataImage, asked: Mapping[str, Any], *, incremental: bool) -> dict[int, KafkaError]:
    """Texts of JAAS with which the next start would be refused, by place in the request."""
    brokers = [
        (place, each)
        for place, each in enumerate(asked["resources"])
        if each["resource_type"] == ConfigResourceType.BROKER
        and any(entry["name"].endswith(JAAS) for entry in each["configs"])
    ]
    if not brokers:
        return {}
    from ottla.drivers.nodes.jaas_settings import mistakes  # few requests are about logins

    refused = {}
    for place, each in brokers:
        with suppress(KafkaError):  # the request is malformed, and refused for that
            for sentence in mistakes(changed_by(image, each, incremental=incremental)):
                refused[place] = KafkaError(ErrorCode.invalid_request, sentence)
    return refused


JAAS: Final = ".sasl.jaas.config"

_AT_BROKER: Final = frozenset({ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER})
"""What a broker looks at itself: whoever may not change it does not learn what it thinks of a value."""


def _unauthorized(
    context: RequestContext, resources: Sequence[_Resource], *, at_broker: bool
) -> Generator[int, None, dict[int, KafkaError]]:
    """The refusals by place in the request. Log levels of a controller take CLUSTER_ACTION."""
    refused: dict[int, KafkaError] = {}
    if context.node.authorizer is None:
        return refused
    for place, each in enumerate(resources):
        yield 2
        resource_type, name = each["resource_type"], each["resource_name"]
        if resource_type not in _KNOWN_TYPES or not (decides_here(context.node) or resource_type in _AT_BROKER):
            continue
        try:
            if resource_type == ConfigResourceType.BROKER_LOGGER and not at_broker:
                authorize_cluster(context, Operation.CLUSTER_ACTION)
            else:
                authorize_config(context, Operation.ALTER_CONFIGS, resource_type, name)
        except KafkaError as error:
            refused[place] = error.with_traceback(None)
    return refused


_KNOWN_TYPES: Final = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}
