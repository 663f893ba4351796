"""What a node that is not alone needs to reach its controllers; one that is alone does not import it."""

from __future__ import annotations

import random as random_module
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ottla.drivers.controller.controller_channel import LocalControllerChannel
from ottla.drivers.controller.controller_nodes import ControllerNodes
from ottla.drivers.controller.remote_controller_channel import RemoteControllerChannel
from ottla.drivers.metadata.cluster_id import ask_cluster_id
from ottla.drivers.nodes.node_client import NodeClient, Timing
from ottla.network import Address, Network

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MS_MAX = 1_000
"""Limit of the backoff to controllers: short after their restart, but not a busy loop while they are away."""


def remote_channel(
    network: Network,
    random: random_module.Random,
    config: ServerConfig,
    controllers: ControllerNodes,
    changed: Callable[[], Awaitable[None]],
    here: LocalControllerChannel | None,
) -> RemoteControllerChannel:
    """A channel to wherever the active controller is; see there for `changed` and `here`."""
    timing = _timing(config, config.request_timeout_ms)
    return RemoteControllerChannel(
        controllers,
        NodeClient(network, f"broker-{config.node_id}-heartbeats", random, timing, whom=controllers.whom),
        NodeClient(network, f"broker-{config.node_id}-forwarding", random, timing, whom=controllers.whom),
        own_timeout_ms=max(1, config.broker_session_timeout_ms // 2),
        forward_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        changed=changed,
        here=here,
    )


async def find_cluster_id(network: Network, random: random_module.Random, config: ServerConfig) -> str:
    """The cluster that the controllers of the settings are of. Raises OttlaError when none of them says so in time."""
    voters = {node_id: Address(*host) for node_id, host in config.quorum_voters.items() if node_id != config.node_id}
    servers: Sequence[Address] = [Address(*each) for each in config.quorum_servers]
    timing = _timing(config, config.controller_quorum_request_timeout_ms)
    client = NodeClient(network, f"broker-{config.node_id}-identity", random, timing)
    try:
        return await ask_cluster_id(
            ControllerNodes(voters, servers),
            client,
            seconds_max=config.initial_broker_registration_timeout_ms / 1000,
            backoff_ms=RECONNECT_BACKOFF_MS,
        )
    finally:
        await client.close()


def _timing(config: ServerConfig, request_timeout_ms: int) -> Timing:
    return Timing(
        request_timeout_ms,
        RECONNECT_BACKOFF_MS,
        RECONNECT_BACKOFF_MS_MAX,
        config.socket_connection_setup_timeout_ms,
    )
