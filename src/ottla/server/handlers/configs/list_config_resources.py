"""ListConfigResources, versions 0-1: what has settings that can be described (KIP-714, 1142).

Version 0 lists client metrics subscriptions only, which is what the API was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import RequestContext, api
from ottla.server.metadata.metadata_view import MetadataView
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ListConfigResourcesRequest
    from ottla.protocol.schemas.sent import ConfigResource, ListConfigResourcesResponse


@api(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), needs=(cluster(Operation.DESCRIBE_CONFIGS),))
def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if context.api_version == 0:
        types: Iterable[int] = (ConfigResourceType.CLIENT_METRICS,)
    else:
        types = dict.fromkeys(request.resource_types) or _NAMES
    image = context.node.image
    resources: list[ConfigResource] = []
    for resource_type in types:
        names = _NAMES.get(resource_type)
        if names is None:
            raise KafkaError(ErrorCode.unsupported_version)
        found = names(image, context.listener_name)
        resources += [{"resource_name": name, "resource_type": resource_type} for name in found]
    return {"config_resources": resources}


def _brokers(image: MetadataImage, listener: str) -> Iterable[str]:
    return [str(broker.id) for broker in MetadataView(image, listener).brokers()]


def _configured(resource_type: ConfigResourceType) -> Callable[[MetadataImage, str], Iterable[str]]:
    """The resources that exist only by having settings."""

    def names(image: MetadataImage, listener: str) -> Iterable[str]:
        return sorted(resource.name for resource in image.configs if resource.type == resource_type)

    return names


_NAMES: dict[int, Callable[[MetadataImage, str], Iterable[str]]] = {
    ConfigResourceType.TOPIC: lambda image, listener: [topic.name for topic in image.topics],
    ConfigResourceType.BROKER: _brokers,
    ConfigResourceType.BROKER_LOGGER: _brokers,
    ConfigResourceType.CLIENT_METRICS: _configured(ConfigResourceType.CLIENT_METRICS),
    ConfigResourceType.GROUP: _configured(ConfigResourceType.GROUP),
}
