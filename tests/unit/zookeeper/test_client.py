"""The client on the simulated loop: callers that wait for room, for a connection, and those that give up."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from ottla.simulation.zookeeper.ensemble import Ensemble
from ottla.simulation.zookeeper.server import PORT, Server
from ottla.testing.loop import SimulatedTime
from ottla.testing.network import SimulatedNetwork
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import Code, ConnectionLossError, NoNodeError, SessionClosedError, ZooKeeperError
from ottla.zookeeper.messages import GetChildren, GetData


class World:
    def __init__(self) -> None:
        self.time = SimulatedTime(1)
        self.network = SimulatedNetwork(self.time)
        self.ensemble = Ensemble(self.time.loop("ensemble"), Random(1))
        loop = self.time.loop("zk")
        self.server = Server(loop, self.network.of(loop, "zk"), self.ensemble, Random(2))
        self.ensemble.on_commit = lambda txn: self.server.committed()
        self.loop = self.time.loop("client")
        self.host = self.network.of(self.loop, "client")

    def run(self, work: Any) -> None:
        async def main() -> None:
            await self.server.start()
            await work

        task = self.loop.create_task(main())
        self.time.run(until=task.done, seconds_max=300)
        task.result()
        assert self.loop.failures == []

    def client(self, **settings: Any) -> ZooKeeper:
        return ZooKeeper(self.host, f"zk:{PORT}", random=Random(3), session_timeout_ms=6000, **settings)


def test_callers_wait_for_room_and_are_served_in_order() -> None:
    world = World()

    async def walk() -> None:
        async with world.client(requests_max=4) as client:
            tasks = [world.loop.create_task(client.create("/n-", b"%d" % n, sequence=True)) for n in range(50)]
            tasks[20].cancel()
            made = [(await task).path for number, task in enumerate(tasks) if number != 20]
            assert made == [f"/n-{number:010}" for number in range(49)]

    world.run(walk())


def test_many_reads_at_once_are_answered_in_order() -> None:
    """More than there is room for, beside others; what is not there stands in its place."""
    world = World()

    async def walk() -> None:
        async with world.client(requests_max=4) as client:
            for number in range(10):
                await client.create(f"/n{number}", b"%d" % number)
            beside = [world.loop.create_task(client.get("/n3")) for _ in range(6)]
            found = await client.read_many([GetData(f"/n{number}") for number in range(12)])
            assert [each.data for each in found[:10]] == [b"%d" % number for number in range(10)]
            assert [type(each) for each in found[10:]] == [NoNodeError] * 2
            assert [(await each).data for each in beside] == [b"3"] * 6
            assert sorted((await client.read_many([GetChildren("/")]))[0].names) >= ["n0"]
            assert await client.read_many([]) == []
            assert client.waiting == 0

    world.run(walk())


def test_many_reads_without_an_answer_are_given_up_together() -> None:
    world = World()

    async def walk() -> None:
        client = ZooKeeper(world.host, "nobody:1", random=Random(1), request_timeout_ms=2000, requests_max=8)
        client.start()
        found = await client.read_many([GetData("/"), GetChildren("/")])
        assert [each.code for each in found] == [Code.OPERATION_TIMEOUT] * 2
        with pytest.raises(ZooKeeperError) as failed:
            await client.read_many([GetData("/") for _ in range(20)])
        assert failed.value.code is Code.OPERATION_TIMEOUT
        assert client.waiting == 0
        await client.close()

    world.run(walk())


def test_callers_in_the_queue_hear_of_the_end() -> None:
    world = World()

    async def walk() -> None:
        client = world.client(requests_max=2)
        client.start()
        await client.wait_connected(5000)
        tasks = [world.loop.create_task(client.sync()) for _ in range(5)]
        await asyncio.sleep(0)
        await client.close()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [type(None)] * 2 + [SessionClosedError] * 3
        with pytest.raises(SessionClosedError):
            await client.get("/")

    world.run(walk())


def test_without_a_server_time_is_up_and_nothing_was_applied() -> None:
    world = World()

    async def walk() -> None:
        client = ZooKeeper(world.host, "nobody:1", random=Random(1), request_timeout_ms=2000, requests_max=2)
        client.start()
        tasks = [world.loop.create_task(client.create("/a")) for _ in range(5)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for each in found:
            assert isinstance(each, ConnectionLossError) and each.code is Code.OPERATION_TIMEOUT
            assert not each.maybe_applied and "nobody:1" in str(each)
        with pytest.raises(ConnectionLossError, match="no ZooKeeper server is connected within 100 ms: nobody:1"):
            await client.wait_connected(100)
        await client.close()

    world.run(walk())


def test_a_watcher_that_fails_and_one_that_asks() -> None:
    """Watchers may make requests; the bug of one is not the others' failure."""
    world = World()
    found: list[Any] = []

    async def walk() -> None:
        async with world.client() as client:
            tasks: list[asyncio.Task[Any]] = []

            def ask(event: Any) -> None:
                tasks.append(world.loop.create_task(client.get("/a")))

            await client.exists("/a", lambda event: 1 / 0)
            await client.exists("/a", ask)
            await client.create("/a", b"x")
            found.append((await tasks[0]).data)

    world.run(walk())
    assert found == [b"x"]
