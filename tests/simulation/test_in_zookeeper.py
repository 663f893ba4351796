"""Clusters that live in ZooKeeper, from seeds: nodes, the ensemble and the way to it fail, and nothing acknowledged is
lost: `test_nodes.py` plays seeds of it. More by hand: `ottla sim --kind "in zookeeper"`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation import scenario
from ottla.simulation.checks.history import History
from ottla.simulation.clients.epoch_consumer import EpochConsumer
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.runs.in_zookeeper import IN_ZOOKEEPER
from ottla.simulation.world import World
from tests.simulation.mutations import MUTATIONS


def test_a_seed_is_the_same_run_every_time() -> None:
    first, second = scenario.run(4, IN_ZOOKEEPER), scenario.run(4, IN_ZOOKEEPER)
    assert (first.digest, first.steps, first.counts) == (second.digest, second.steps, second.counts)


def test_bugs_are_planted_in_it() -> None:
    assert sum(each.kind == IN_ZOOKEEPER for each in MUTATIONS) >= 12


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
