"""The way from a broker to the active controller: on whose behalf it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from ottla.drivers.controller.controller_channel import LocalControllerChannel, Requester
from ottla.drivers.controller.controller_nodes import ControllerNodes
from ottla.drivers.controller.remote_controller_channel import RemoteControllerChannel
from ottla.drivers.nodes.node_client import NodeClient
from ottla.network import Address
from ottla.protocol.messages import ApiKey
from tests.unit.server.stub import until

ALICE = Requester("User:alice", "10.0.0.9", "console")


class Here:
    """The controller of this process, which becomes the active one while a request waits."""

    is_open = False

    def __init__(self) -> None:
        self.asked: list[tuple[ApiKey, int, Requester]] = []

    async def call(
        self, api_key: ApiKey, request: Mapping[str, Any], *, version: int, requester: Requester
    ) -> dict[str, Any]:
        self.asked.append((api_key, version, requester))
        return {}


def test_a_request_that_waits_for_this_controller_stays_its_clients() -> None:
    """Quotas of mutations, and whoever writes down who did what, would else take it for the broker's own."""
    here = Here()

    async def changed() -> None:
        pass

    async def main() -> None:
        nobody = cast(NodeClient, None)
        channel = RemoteControllerChannel(
            ControllerNodes({2: Address("elsewhere", 1)}),
            nobody,
            nobody,
            own_timeout_ms=60_000,
            forward_timeout_ms=60_000,
            retry_backoff_ms=1,
            changed=changed,
            here=cast(LocalControllerChannel, here),
        )
        asking = asyncio.create_task(channel.send(ApiKey.CREATE_TOPICS, {}, version=5, requester=ALICE))
        await until(lambda: channel._looking)
        here.is_open = True
        channel.activated()
        assert await asking == {}

    asyncio.run(main())
    assert here.asked == [(ApiKey.CREATE_TOPICS, 5, ALICE)]
