"""A new broker asks its controllers which cluster they are of, where Kafka wants the directories formatted with it."""

from __future__ import annotations

import asyncio

from ottla.drivers.controller.controller_nodes import ControllerNodes
from ottla.drivers.nodes.node_client import NodeClient
from ottla.errors import KafkaError, OttlaError
from ottla.protocol.messages import ApiKey

CONTROLLERS = 2
"""The endpoint type of controllers in DescribeCluster (KIP-919)."""


async def ask_cluster_id(
    controllers: ControllerNodes, client: NodeClient, *, seconds_max: float, backoff_ms: int
) -> str:
    """The cluster id that the first controller that answers says. Raises OttlaError when none does in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds_max
    while True:
        address = controllers.to_ask()
        assert address is not None, "the settings of a broker name a controller"
        left_ms = max(1, round((deadline - loop.time()) * 1000))
        try:
            request = {"include_cluster_authorized_operations": False, "endpoint_type": CONTROLLERS}
            answer = await client.ask(
                address, ApiKey.DESCRIBE_CLUSTER, request, versions=(1, 2), timeout_ms=min(left_ms, 2_000)
            )
            if not answer.response.error_code and answer.response.cluster_id:
                return str(answer.response.cluster_id)
            why = answer.response.error_code.name
        except KafkaError as error:
            why = str(error)
        if loop.time() >= deadline:
            raise OttlaError(
                f"no controller answered with the cluster id ({address}: {why}): start the controllers, or correct "
                "controller.quorum.bootstrap.servers"
            )
        await asyncio.sleep(backoff_ms / 1000)
