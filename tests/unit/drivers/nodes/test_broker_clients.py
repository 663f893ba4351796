"""Requests to a broker that is fenced, gone or started again end at once: no reset may ever come for them."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.drivers.nodes.broker_clients import BrokerClients
from ottla.drivers.nodes.node_client import NodeClient
from ottla.drivers.ports import Reaching
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, BrokerRegistration, Endpoint, MetadataImage, SecurityProtocol
from ottla.network import Address, SystemNetwork
from tests.unit.drivers.nodes.test_node_client import Held, beat, failure, heartbeat_answer, peer_and_client, run


def registered(node_id: int, address: Address, epoch: int = 7) -> BrokerRegistration:
    endpoint = Endpoint(*address, SecurityProtocol.PLAINTEXT)
    return BrokerRegistration(node_id, epoch, UUID(int=epoch), {"PLAINTEXT": endpoint}, fenced=False)


class Cluster:
    """Node 1, which knows what other brokers are registered."""

    def __init__(self, *brokers: BrokerRegistration) -> None:
        self.node = SimpleNamespace(
            node_id=1,
            config=SimpleNamespace(request_timeout_ms=20_000, socket_connection_setup_timeout_ms=20_000),
            image=replace(EMPTY_IMAGE, offset=1, brokers={each.id: each for each in brokers}),
            network=SystemNetwork(),
            random=random.Random(1),
            inter_broker_listener="PLAINTEXT",
        )
        self.clients = BrokerClients(cast(Reaching, self.node))

    def change(self, node_id: int, now: BrokerRegistration | None) -> None:
        delta = MetadataDelta(self.node.image)
        delta.brokers[node_id] = now
        self.node.image = image = delta.apply(2, 1, 0)
        self.clients.on_metadata(delta, cast(MetadataImage, image))


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({"epoch": 8}, True),
        ({"epoch": 8, "fenced": True}, True),
        ({"fenced": True}, True),
        (None, True),
        ({"in_controlled_shutdown": True}, False),
        ({"cordoned_log_dirs": (UUID(int=9),)}, False),
    ],
)
def test_what_an_incarnation_was_asked_ends_with_it(change: dict[str, Any] | None, ends: bool) -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, _, address):
            held = Held(1)
            peer.answer = held
            before = registered(2, address)
            cluster = Cluster(before)
            client = cluster.clients.new("test")
            try:
                asked = asyncio.ensure_future(beat(client, address))
                await held.all_there.wait()
                cluster.change(2, None if change is None else replace(before, **change))
                if ends:
                    error = await failure(asked)
                    assert error.code is ErrorCode.network_exception and "broker 2 was fenced" in str(error)
                    peer.answer = heartbeat_answer
                    assert (await beat(client, address)).version == 3 and peer.connections == 2
                else:
                    await held.release(peer)
                    await asked
                    assert peer.connections == 1
            finally:
                await client.close()

    run(body())


def test_other_brokers_and_other_changes_of_a_fenced_one() -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, _, address):
            held = Held(1)
            peer.answer = held
            fenced = replace(registered(2, address), fenced=True)
            elsewhere = registered(3, Address("127.0.0.1", 1))
            cluster = Cluster(fenced, elsewhere, registered(1, address))
            client = cluster.clients.new("test")
            try:
                asked = asyncio.ensure_future(beat(client, address))
                await held.all_there.wait()
                cluster.change(2, replace(fenced, log_dirs=(UUID(int=5),)))
                cluster.change(2, replace(fenced, fenced=False))
                cluster.change(3, None)
                cluster.change(1, None)  # the node itself
                await held.release(peer)
                await asked
            finally:
                await client.close()

    run(body())


@pytest.mark.parametrize("who_ends", ["the broker", "the caller", "both"])
def test_while_a_connection_is_made(who_ends: str) -> None:
    """A caller that is cancelled in the same moment stays cancelled: it may be a part that stops."""

    async def body() -> None:
        begun, hold = asyncio.Event(), asyncio.Event()

        class Silent(SystemNetwork):
            async def connect(self, *_: Any, **__: Any) -> Any:
                begun.set()
                await hold.wait()

        address = Address("127.0.0.1", 9)
        cluster = Cluster(registered(2, address))
        cluster.node.network = Silent()
        client = cluster.clients.new("test")
        ended: list[BaseException] = []

        async def ask() -> None:
            try:
                await beat(client, address)
            except BaseException as error:
                ended.append(error)
                raise

        asked = asyncio.ensure_future(ask())
        await begun.wait()
        if who_ends != "the caller":
            cluster.change(2, None)
        if who_ends != "the broker":
            asked.cancel()
        with suppress(KafkaError, asyncio.CancelledError):
            await asked
        assert isinstance(ended[0], KafkaError if who_ends == "the broker" else asyncio.CancelledError)
        await client.close()

    run(body())


def test_a_client_that_is_closed_is_forgotten() -> None:
    async def body() -> None:
        cluster = Cluster()
        clients: list[NodeClient] = []
        for _ in range(3):
            clients.append(cluster.clients.new("test"))
            await clients[-1].close()
        assert cluster.clients._clients == clients[-1:]

    run(body())
