"""How replication talks to leaders."""

from __future__ import annotations

import random
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.config.server import ServerConfig
from ottla.drivers.replication.replication import Replication
from ottla.network import SystemNetwork
from tests.unit.drivers.nodes.test_node_client import peer_and_client, run

SETTING = "replica.socket.receive.buffer.bytes"


@pytest.mark.parametrize(("text", "size"), [("50000", 100_000), ("-1", None), (None, None)])
def test_a_followers_connections_have_the_receive_buffer_that_the_settings_name(
    text: str | None, size: int | None
) -> None:
    """Kafka's default is that of slow networks, so that it counts where somebody asks for it. Linux doubles it."""
    settings = {"log.dirs": "/nowhere"} | ({} if text is None else {SETTING: text})
    config = ServerConfig.load(None, settings, {})
    node = SimpleNamespace(
        config=config,
        node_id=2,
        network=SystemNetwork(),
        random=random.Random(1),
        inter_broker_listener="PLAINTEXT",
        image=SimpleNamespace(brokers={}, cluster_id=""),
    )

    def option(connection: Any) -> int:
        sock = connection._transport.get_extra_info("socket")
        return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))

    async def main() -> None:
        async with peer_and_client() as (peer, other, address):
            peer.me = ("", 1)
            client = Replication._client(cast(Replication, SimpleNamespace(_node=node)), 1, 0)
            try:
                found = option(await client.connection(address))
                system = option(await other.connection(address))
                assert found == (system if size is None else size) and system != 100_000
            finally:
                await client.close()

    run(main())
