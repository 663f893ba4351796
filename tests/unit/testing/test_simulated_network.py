"""A network in memory: bytes in order, late, and lost only together with their connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.testing.loop import SimulatedTime
from ottla.testing.network import RETRANSMIT_SECONDS_MAX, HostNetwork, SimulatedNetwork

DATA = bytes(range(256)) * 400


class End(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.lost: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Hosts:
    """A server that keeps what it accepts, and a client."""

    def __init__(self, seed: int = 1) -> None:
        self.time = SimulatedTime(seed)
        self.network = SimulatedNetwork(self.time)
        self.server_loop, self.client_loop = self.time.loop("server"), self.time.loop("client")
        self.server = self.network.of(self.server_loop, "server")
        self.client = self.network.of(self.client_loop, "client")
        self.accepted: list[End] = []

    def accept(self) -> End:
        self.accepted.append(End())
        return self.accepted[-1]

    def do(self, work: Callable[[HostNetwork], Coroutine[Any, Any, Any]], host: HostNetwork) -> Any:
        task = host.loop.create_task(work(host))
        self.time.run(until=task.done, seconds_max=200)
        return task.result()

    def connected(self) -> tuple[End, End]:
        async def listen(host: HostNetwork) -> None:
            (await host.listen(self.accept, "server", 9092)).start()

        async def connect(host: HostNetwork) -> End:
            return (await host.connect(End, "server", 9092))[1]  # type: ignore[return-value]

        self.do(listen, self.server)
        client = self.do(connect, self.client)
        self.until(lambda: self.accepted)
        return client, self.accepted[0]

    def until(self, condition: Callable[[], Any]) -> None:
        self.time.run(until=condition, seconds_max=200)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_and_in_pieces(seed: int) -> None:
    hosts = Hosts(seed)
    client, server = hosts.connected()
    client.transport.write(DATA)
    hosts.until(lambda: len(server.received) == len(DATA))
    assert server.received == DATA
    assert hosts.time.now_s > 0


def test_a_sender_sees_how_much_the_peer_takes() -> None:
    hosts = Hosts()
    client, server = hosts.connected()
    server.transport.pause_reading()
    sender = hosts.client.sender(client.transport)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += sender.send(DATA)
    woken: list[float] = []

    def go_on() -> None:
        woken.append(hosts.time.now_s)
        sender.unwatch()

    sender.watch(go_on)
    server.transport.resume_reading()
    hosts.until(lambda: woken)
    assert 0 < len(server.received) <= sent
    assert sender.send(b"more") > 0


def test_what_a_partition_holds_back_arrives_when_it_heals() -> None:
    hosts = Hosts()
    client, server = hosts.connected()
    hosts.network.cut("client", "server")
    client.transport.write(DATA)
    server.transport.write(b"the other way")
    hosts.network.loop.call_later(5, hosts.network.heal)
    hosts.until(lambda: client.received)
    assert hosts.time.now_s < 1 and not server.received
    hosts.until(lambda: len(server.received) == len(DATA))
    assert hosts.time.now_s >= 5 and hosts.network.counts["stalled"]


def test_a_partition_that_lasts_ends_the_connection() -> None:
    hosts = Hosts()
    client, server = hosts.connected()
    hosts.network.cut("client", "server")
    client.transport.write(DATA)
    hosts.until(lambda: client.lost)
    assert isinstance(client.lost[0], TimeoutError) and not server.received
    assert hosts.time.now_s >= RETRANSMIT_SECONDS_MAX


def test_half_of_a_connection_is_lost_and_the_other_learns_by_sending() -> None:
    hosts = Hosts()
    client, server = hosts.connected()
    hosts.network.half_open(client.transport)
    hosts.until(lambda: client.lost)
    hosts.client_loop.call_later(30, server.transport.write, b"are you there?")
    hosts.until(lambda: server.lost)
    assert hosts.time.now_s > 30 and isinstance(server.lost[0], ConnectionResetError)


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_dead_process_closes_its_connections_unless_the_machine_is_dead_too(power_loss: bool) -> None:
    hosts = Hosts()
    client, server = hosts.connected()
    hosts.server_loop.kill()
    hosts.network.ended(hosts.server_loop, "server", power_loss=power_loss)
    client.transport.write(b"x")
    hosts.until(lambda: client.lost)
    assert not server.received
    assert isinstance(client.lost[0], TimeoutError if power_loss else ConnectionResetError)


def test_nobody_listens_there() -> None:
    hosts = Hosts()

    async def connect(host: HostNetwork) -> None:
        await host.connect(End, "server", 9092)

    with pytest.raises(ConnectionRefusedError):
        hosts.do(connect, hosts.client)


def test_connections_are_not_in_order_with_each_other() -> None:
    orders = set()
    for seed in range(20):
        hosts = Hosts(seed)
        first, _ = hosts.connected()

        async def connect(host: HostNetwork) -> End:
            return (await host.connect(End, "server", 9092))[1]  # type: ignore[return-value]

        second = hosts.do(connect, hosts.client)
        hosts.until(lambda hosts=hosts: len(hosts.accepted) == 2)
        first.transport.write(b"1")
        second.transport.write(b"2")
        hosts.until(lambda hosts=hosts: any(each.received for each in hosts.accepted))
        orders.add(next(bytes(each.received) for each in hosts.accepted if each.received))
    assert orders == {b"1", b"2"}


def test_a_closed_connection_sends_what_was_written() -> None:
    hosts = Hosts()
    client, server = hosts.connected()
    client.transport.write(DATA)
    client.transport.close()
    hosts.until(lambda: server.lost)
    assert server.received == DATA and server.lost == [None] and client.lost == [None]
