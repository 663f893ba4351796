"""Which rule decides whether a user may do something: the cluster's ACLs, and the settings of one of its brokers, put
through the authorizer that nodes have."""

from __future__ import annotations

from ottla.cli import wire
from ottla.client.requests import asked_settings
from ottla.protocol.messages import ApiKey
from ottla.security.explained import SETTINGS

BROKER = 4
"""The type of the resource whose settings are asked for."""


def settings_of(bootstrap: str) -> dict[str, str | None]:
    """The settings of the authorizer of a broker, those that it has; without a value those that it hides."""
    nodes = wire.ask(bootstrap, ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False})
    wire.ensure_none(nodes, "the cluster")
    for broker in nodes["brokers"]:
        values = asked_settings(BROKER, [str(broker["broker_id"])], SETTINGS)
        cluster_id = nodes.get("cluster_id")
        address = wire.node_address(broker["host"], broker["port"], broker["broker_id"], cluster_id)
        (found,) = wire.ask(address, ApiKey.DESCRIBE_CONFIGS, values)["results"]
        wire.ensure_none(found, f"the settings of broker {broker['broker_id']}")
        return {each["name"]: each["value"] for each in found["configs"]}
    return {}
