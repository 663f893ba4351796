"""What the active controller is asked, by API: each request has one function that decides on it.

Requests and responses are Kafka's own messages as mappings with the names of the newest version, whether they come
from a handler of the same process or from a broker elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.controller import brokers, configs, features
from ottla.controller.bootstrap import MIN_ISR
from ottla.controller.decision import Decider, Decision, Inputs, Request, Steps
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages import ApiKey

# No use for these at the start of a node that is alone.


def _create_topics(image: MetadataImage, asked: Any, by: Inputs) -> Decision[Any] | Steps[Any]:
    from ottla.controller import topics

    return topics.create_topics(image, asked, by.config, by.random, by.permits)


def _delete_topics(image: MetadataImage, asked: Any, by: Inputs) -> Decision[Any] | Steps[Any]:
    from ottla.controller import topics

    return topics.delete_topics(image, asked, by.config, by.permits)


def _create_partitions(image: MetadataImage, asked: Any, by: Inputs) -> Decision[Any] | Steps[Any]:
    from ottla.controller import topics

    return topics.create_partitions(image, asked, by.random, by.permits)


def _allocate_producer_ids(image: MetadataImage, asked: Any, by: Inputs) -> Decision[Any]:
    from ottla.controller import producer_ids

    return producer_ids.allocate(image, asked)


_DECIDERS: Mapping[int, Decider] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_CONFIGS: lambda image, asked, by: configs.alter_configs(image, asked, by.config),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda image, asked, by: configs.incremental_alter_configs(
        image, asked, by.config
    ),
    ApiKey.UPDATE_FEATURES: lambda image, asked, by: features.update_features(
        image, asked, by.config.static.get(MIN_ISR, "1"), by.node_id, by.voters()
    ),
    ApiKey.BROKER_REGISTRATION: lambda image, asked, by: brokers.register_broker(
        image, asked, by.cluster_id, by.config
    ),
    ApiKey.BROKER_HEARTBEAT: lambda image, asked, by: brokers.heartbeat(image, asked, by.config, by.sessions),
    ApiKey.UNREGISTER_BROKER: lambda image, asked, by: brokers.unregister_broker(image, asked, by.config),
    ApiKey.UNREGISTER_CONTROLLER: lambda image, asked, by: brokers.unregister_controller(image, asked, by.node_id),
    ApiKey.CONTROLLER_REGISTRATION: lambda image, asked, by: brokers.register_controller(image, asked),
    ApiKey.ALLOCATE_PRODUCER_IDS: _allocate_producer_ids,
}


def decide(api_key: int, image: MetadataImage, request: Request, inputs: Inputs) -> Decision[Any] | Steps[Any]:
    """The decision on one request. Raises KafkaError to refuse it as a whole; UNSUPPORTED_VERSION for other APIs."""
    decider = _DECIDERS.get(api_key)
    if decider is None:
        from ottla.controller.rare_requests import DECIDERS  # no use for them at the start of a node that is alone

        decider = DECIDERS.get(api_key)
    if decider is None:
        raise KafkaError(ErrorCode.unsupported_version, f"a controller does not support API {api_key}")
    return decider(image, request, inputs)
