"""The clients by which parts of a node ask other brokers. They hear when a broker is fenced or starts again.

A broker that is killed while a link is cut does not tell anyone: what it was asked before gets no answer and no reset,
although another process answers there a moment later. Whoever sends one request after the other would wait for
`request.timeout.ms` until the next one. The metadata knows sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.drivers.nodes.node_client import NodeClient, Timing
from ottla.model import MeantNode
from ottla.network import Address

if TYPE_CHECKING:
    from ottla.drivers.ports import Reaching
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage


class BrokerClients:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: Reaching) -> None:
        self._node = node
        self._clients: list[NodeClient] = []

    def new(self, client_id: str, *, request_timeout_ms: int | None = None) -> NodeClient:
        """A client of its own for one part of the node, which closes it. Its requests have `request.timeout.ms`, or
        `request_timeout_ms`."""
        node = self._node
        config = node.config
        timing = Timing(
            config.request_timeout_ms if request_timeout_ms is None else request_timeout_ms,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        )
        client = NodeClient(node.network, client_id, node.random, timing, whom=broker_meant(node))
        self._clients = [*(each for each in self._clients if not each.is_closed), client]
        return client

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Fail requests to brokers that were fenced, are gone or have started again, with NETWORK_EXCEPTION."""
        listener = self._node.inter_broker_listener
        for broker in delta.ended_brokers():
            endpoint = broker.endpoints.get(listener)
            if endpoint is not None and broker.id != self._node.node_id:
                address, why = Address(endpoint.host, endpoint.port), f"broker {broker.id} was fenced or started again"
                for client in self._clients:
                    client.drop(address, why)


def broker_meant(node: Reaching) -> Callable[[Address], MeantNode | None]:
    """The broker that is meant at an address, by the newest image; None where none or several are registered with it.
    It is looked for when a connection is made, not for each request."""

    def whom(address: Address) -> MeantNode | None:
        image, listener = node.image, node.inter_broker_listener
        found = [
            broker.id
            for broker in image.brokers.values()
            if (end := broker.endpoints.get(listener)) is not None and (end.host, end.port) == address
        ]
        return MeantNode(image.cluster_id, found[0]) if image.cluster_id and len(found) == 1 else None

    return whom
