"""Clusters that live in ZooKeeper, from seeds: nodes, the ensemble and the way to it fail, and nothing acknowledged is
lost: `test_nodes.py` plays seeds of it. More by hand: `ottla sim --kind "in zookeeper"`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, get_args

import pytest

from ottla.cli.sim import Kind
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation import scenario
from ottla.simulation.checks.history import History, Mark
from ottla.simulation.clients.epoch_consumer import EpochConsumer
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.runs.in_zookeeper import IN_ZOOKEEPER, InZooKeeperRun
from ottla.simulation.world import EPOCH_MS, Violation, World
from tests.simulation.mutations import MUTATIONS


def test_a_seed_is_the_same_run_every_time() -> None:
    first, second = scenario.run(4, IN_ZOOKEEPER), scenario.run(4, IN_ZOOKEEPER)
    assert (first.digest, first.steps, first.counts) == (second.digest, second.steps, second.counts)


def test_bugs_are_planted_in_it() -> None:
    assert sum(each.kind == IN_ZOOKEEPER for each in MUTATIONS) >= 12


def test_the_command_plays_every_kind() -> None:
    """It had no name for clusters in ZooKeeper, so no seed of theirs could be played by hand."""
    assert get_args(Kind) == scenario.KINDS


class _Brokers:
    """Answers Metadata with the leader and epoch that a broker knows, and keeps the epochs of fetches."""

    host = "node1"

    def __init__(self, *known: tuple[int, int]) -> None:
        self.known = list(known)
        self.epochs: list[int] = []

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        if key is ApiKey.METADATA:
            leader, epoch = self.known.pop(0)
            partition = {"error_code": 0, "partition_index": 0, "leader_id": leader, "leader_epoch": epoch}
            brokers = [{"node_id": each, "host": f"node{each}"} for each in (1, 2)]
            return {"brokers": brokers, "topics": [{"partitions": [partition]}]}
        self.epochs.append(values["topics"][0]["partitions"][0]["current_leader_epoch"])
        return {"error_code": 0, "responses": [{"partitions": [{"error_code": 0, "records": b""}]}]}

    def close(self) -> None: ...


def test_a_consumer_follows_no_older_epoch_and_names_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 10 met the leader of an older epoch that answered OFFSET_OUT_OF_RANGE."""

    class Still(EpochConsumer):
        def start(self) -> None: ...

    world = World(1)
    consumer = Still(world, History(world, fsynced=True), "c", ["node1", "node2"], ("t", 0))
    consumer.network = world.network.of(world.process("c"), "c")
    consumer.random = Random(1)
    brokers = _Brokers((1, 4), (2, 5), (1, 4), (-1, 6), (2, 5))

    async def connect(*args: Any) -> Any:
        return brokers

    async def walk() -> None:
        assert (await consumer.where(), await consumer.where()) == ("node1", "node2")
        with pytest.raises(Disconnected, match="knows epoch 4, not 5"):
            await consumer.where()
        with pytest.raises(Disconnected, match="nobody leads"):
            await consumer.where()
        assert await consumer.where() == "node2"
        wire: Any = brokers
        await consumer.fetch(wire, 0.0)
        await consumer.fetch(wire, 0.0, 3)
        assert brokers.epochs == [5, 3]

    monkeypatch.setattr(Wire, "connect", connect)
    asyncio.run(walk())
    for code in (ErrorCode.unknown_leader_epoch, ErrorCode.fenced_leader_epoch):
        consumer.check_retriable(code, "fetch")
        assert world.counts[f"error {code.name}"] == 1


class _CutOff:
    """A leader that knows one epoch, refuses every other and has nothing."""

    host = "node1"

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.asked: list[int] = []

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        partition = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": self.epoch}
        return {"brokers": [{"node_id": 1, "host": "node1"}], "topics": [{"partitions": [partition]}]}

    def send(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        assert key is ApiKey.LIST_OFFSETS
        self.asked.append(values["topics"][0]["partitions"][0]["current_leader_epoch"])
        return self.asked[-1]

    async def answer(self, epoch: int) -> Any:
        """Nothing is of that time or later, which is a violation where it is believed."""
        error = ErrorCode.none if epoch in (-1, self.epoch) else ErrorCode.unknown_leader_epoch
        return {"topics": [{"partitions": [{"error_code": error, "offset": -1, "timestamp": -1}]}]}

    def close(self) -> None: ...


def test_a_leader_that_is_cut_off_is_not_believed_that_nothing_is_so_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 87: two of three nodes had elected another leader, which acknowledged records; the first one, of epoch 4
    here, answered a look-up by time from what it had. A process that starts again keeps to the newest epoch too."""

    class Still(InZooKeeperRun.trimmer):  # type: ignore[misc]
        def start(self) -> None: ...

    world = World(1)
    trimmer = Still(world, History(world, fsynced=True), "trimmer", ["node1", "node2"])
    trimmer.network = world.network.of(world.process("trimmer"), "trimmer")
    trimmer.random = Random(2)
    trimmer.times = {44: (EPOCH_MS, Mark())}
    brokers = _CutOff(5)

    async def connect(*args: Any) -> Any:
        return brokers

    async def walk() -> None:
        assert await trimmer.where() == "node1"
        brokers.epoch = 4
        trimmer.drop_state()
        with pytest.raises(Disconnected, match="knows epoch 4, not 5"):
            await trimmer.where()
        trimmer.random = Random(2)  # which deletes nothing at first
        assert not await trimmer._trim_and_look(brokers)
        assert brokers.asked == [5]
        assert not world.violations and world.counts["error unknown_leader_epoch"] == 1
        trimmer.random, trimmer.newest = Random(2), 4  # it would be told of, if the epoch were not named
        with pytest.raises(Violation, match="and 44 is of 0"):
            await trimmer._trim_and_look(brokers)

    monkeypatch.setattr(Wire, "connect", connect)
    asyncio.run(walk())
