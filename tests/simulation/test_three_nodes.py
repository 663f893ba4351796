"""Three nodes, each broker and controller, in virtual time: the active controller changes, and what it said stays.

How long elections take is settled in seconds of that time; nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.writer import image_records
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from ottla.simulation.clients.clients import Disconnected, Wire
from ottla.simulation.world import Machine, World

NODES = ("node1", "node2", "node3")
CLUSTER_ID = "three-nodes-of-a-test0"
SETTLED_S = 30.0
"""An election, a session and a start, several times over."""


def settings(number: int) -> dict[str, str]:
    name = NODES[number - 1]
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{name}:9092,CONTROLLER://{name}:9093",
        "controller.quorum.voters": ",".join(f"{n}@{each}:9093" for n, each in enumerate(NODES, start=1)),
        "ottla.cluster.id": CLUSTER_ID,
        "offsets.topic.replication.factor": "1",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


def is_active(node: Node) -> bool:
    return node.metadata.controller is not None and node.metadata.controller.active


class Cluster:
    def __init__(self, seed: int, more: Mapping[str, str] | None = None) -> None:
        self.world = World(seed)
        self.machines = [self.world.machine(name, settings(n) | (more or {})) for n, name in enumerate(NODES, start=1)]
        for machine in self.machines:
            machine.wanted = False  # tests start them again
            machine.start()
        self.loop = self.world.process("client")
        self.network = self.world.network.of(self.loop, "client")
        self.acknowledged: list[str] = []
        self.attempts = 0

    def nodes(self) -> list[Node]:
        return [each.node for each in self.machines if each.is_serving and each.node is not None]

    def active(self) -> list[Machine]:
        return [each for each in self.machines if each.node is not None and is_active(each.node)]

    def is_settled(self, nodes: int = 3) -> bool:
        """All serve, one leads, everybody follows it and has all that it has, and nobody is fenced."""
        found = self.nodes()
        images = [each.image for each in found]
        return (
            len(found) == nodes
            and len(self.active()) == 1
            and len({each.metadata.quorum.leader_id for each in found} - {-1}) == 1
            and len({each.offset for each in images}) == 1
            and all(sum(not b.fenced for b in each.brokers.values()) == nodes for each in images)
            and all(set(each.controllers) == {1, 2, 3} for each in images)
        )

    async def until(self, found: Callable[[], bool], seconds_max: float = SETTLED_S) -> None:
        async with asyncio.timeout(seconds_max):
            while not found():  # noqa: ASYNC110  in virtual time
                await asyncio.sleep(0.05)

    async def ask(self, host: str, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        """Over a connection of its own. Raises Disconnected."""
        wire = await Wire.connect(self.network, host)
        try:
            return await wire.ask(key, version, values)
        finally:
            wire.close()

    async def create(self, name: str, through: str, partitions: int = 1, factor: int = 1) -> int | None:
        """The error code; None where nobody answered."""
        self.attempts += 1
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": factor,
            "assignments": [],
            "configs": [],
        }
        request = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        try:
            answer = await self.ask(through, ApiKey.CREATE_TOPICS, 7, request)
        except Disconnected:
            return None
        return int(answer["topics"][0]["error_code"])

    async def create_many(self, prefix: str, count: int) -> None:
        """Topics one after the other, through every node in turn, until each is there."""
        for number in range(count):
            name, turn = f"{prefix}{number}", number
            while True:
                code = await self.create(name, NODES[turn % 3])
                if code in (ErrorCode.none, ErrorCode.topic_already_exists):
                    self.acknowledged.append(name)
                    break
                assert code in (None, ErrorCode.request_timed_out, ErrorCode.not_controller), ErrorCode(code or 0)
                turn += 1
                await asyncio.sleep(0.1)

    def check(self) -> None:
        """Images are the same at the same offsets, and have what was acknowledged."""
        images = [each.image for each in self.nodes()]
        contents = [list(image_records(each)) for each in images]
        assert contents[0] and all(each == contents[0] for each in contents)
        assert set(images[0].topics_by_name) >= set(self.acknowledged)

    def run(self, work: Callable[[Cluster], Awaitable[None]], seconds_max: float = 600.0) -> None:
        async def main() -> None:
            await self.until(self.is_settled)
            await work(self)
            await self.until(lambda: len({each.image.offset for each in self.nodes()}) == 1)
            self.check()

        with self.world.logging():
            try:
                task = self.loop.create_task(main())
                self.world.time.run(until=lambda: task.done() or self.world.violations, seconds_max=seconds_max)
                assert not self.world.violations, self.world.violations
                assert task.done(), "not in time"
                task.result()
            except BaseException:
                print("\n".join(self.world.lines[-200:]))
                raise
            finally:
                self.world.close()
        assert not self.world.violations, self.world.violations


def test_three_nodes_start_together_and_create_topics() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create_many("t", 6)
        await cluster.until(cluster.is_settled)

    Cluster(1).run(work)


def test_the_active_controller_is_killed_while_topics_are_created() -> None:
    async def work(cluster: Cluster) -> None:
        for number in range(3):
            creating = asyncio.get_running_loop().create_task(cluster.create_many(f"r{number}-", 12))
            await asyncio.sleep(0.3)
            (active,) = cluster.active()
            active.crash(power_loss=number == 1)
            await cluster.until(lambda: bool(cluster.active()))
            await creating
            active.start()
            await cluster.until(cluster.is_settled)
        assert cluster.world.counts["kill"] + cluster.world.counts["power loss"] == 3

    Cluster(2).run(work)


STOPPED_TOGETHER_S = 0.6
"""Two elections, of which the second finds nobody, and a look at who is gone."""


@pytest.mark.parametrize("seed", range(3, 9))
def test_all_nodes_stop_together_without_waiting_for_each_other(seed: int) -> None:
    """The first one leaves the quorum to the others, and the last one sees that there is none any more."""

    async def work(cluster: Cluster) -> None:
        await cluster.create_many("t", 3)
        loop = cluster.loop
        began_s = loop.time()
        stopping = [machine for machine in cluster.machines if machine.stop() is None]
        await cluster.until(lambda: all(each.loop is None for each in stopping))
        assert loop.time() - began_s <= STOPPED_TOGETHER_S
        assert cluster.world.counts["stopped"] == 3
        for machine in cluster.machines:
            machine.start()
        await cluster.until(cluster.is_settled)

    Cluster(seed).run(work)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_node_that_stops_beside_a_dead_one_is_let_go_by_the_third(seed: int) -> None:
    """Two of three are a quorum: one that is gone is no reason not to wait for it."""

    async def work(cluster: Cluster) -> None:
        await cluster.create_many("t", 3)
        (active,) = cluster.active()
        leaves, dead = (each for each in cluster.machines if each is not active)
        dead.crash(power_loss=False)
        assert leaves.node is not None
        lifecycle = leaves.node.metadata.lifecycle
        answers: list[bool] = []
        ask = lifecycle._may_shut_down

        async def slow() -> bool:
            await asyncio.sleep(0.6)  # a busy controller, or a fsync that takes long
            answers.append(await ask())
            return answers[-1]

        lifecycle._may_shut_down = slow  # type: ignore[method-assign]
        leaves.stop()
        await cluster.until(lambda: leaves.loop is None)
        assert answers and answers[-1]
        for machine in (leaves, dead):
            machine.start()
        await cluster.until(cluster.is_settled)

    Cluster(seed).run(work)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_an_active_controller_that_stops_leaves_no_gap(seed: int) -> None:
    """What was asked of it goes to the next one at once."""

    async def work(cluster: Cluster) -> None:
        (active,) = cluster.active()
        others = [name for name in NODES if name != active.name]
        active.stop()
        began_s = cluster.loop.time()
        for number in range(6):
            assert await cluster.create(f"u{number}", others[number % 2]) == ErrorCode.none
            cluster.acknowledged.append(f"u{number}")
        assert cluster.loop.time() - began_s <= STOPPED_TOGETHER_S
        await cluster.until(lambda: active.loop is None)
        active.start()
        await cluster.until(cluster.is_settled)

    Cluster(seed).run(work)
