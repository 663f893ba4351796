"""Many requests to the controller at once, on a disk that is slow, full for a moment or gone: what is answered is true.

Each client owns some topics, so that it knows what they are; only the outcome of its last request may be open. Whoever
follows the metadata checks that it sees committed changes only, each based on the one before.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ottla.config.server import ServerConfig
from ottla.drivers.metadata.metadata_services import MetadataServices
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.protocol.messages import ApiKey
from ottla.testing.disk import SimulatedFileSystem
from tests.simulation.disks.test_metadata_log import until_crash
from tests.simulation.world import ROOT, SimulatedClock

SEEDS = range(120)
CLIENTS, REQUESTS = 5, 8
SETTINGS = {"log.dirs": ROOT, "metadata.log.max.record.bytes.between.snapshots": "900"}
ENDPOINTS = {"PLAINTEXT": Endpoint("localhost", 9092)}
GONE, OPEN = 0, None
"""Partitions of a missing topic and of an unknown one."""


class Cluster:
    """A node's metadata through its crashes, and what its clients were told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = SimulatedClock()
        self.fs = SimulatedFileSystem(Random(seed + 1), now_ms=self.clock.now_ms)
        self.fs.makedirs(ROOT)
        self.fs.fsync_all()
        self.known: dict[str, int | None] = {}
        """Partitions by topic, as the answers said."""
        self.producer_ids: list[int] = []
        self.refused = self.in_flight_max = self.changes = 0

    async def start(self) -> MetadataServices:
        node = MetadataServices(self.fs, self.clock, self.random, ServerConfig.load(overrides=SETTINGS))
        await node.start()
        await node.lifecycle.register(ENDPOINTS, node.directory_ids)
        await node.lifecycle.unfence()
        return node

    def follow(self, node: MetadataServices) -> None:
        last: MetadataImage | None = None

        def steps(delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
            for _ in range(self.random.randrange(4)):
                yield

        def apply(delta: MetadataDelta, image: MetadataImage) -> None:
            nonlocal last
            assert image.offset < node.quorum.high_watermark, "published before it was committed"
            assert last is None or delta.base is last, "a change is missing"
            last = image
            self.changes += 1
            self.in_flight_max = max(self.in_flight_max, len(node.controller._pending))

        node.publisher.subscribe(apply, before=steps, after=steps)

    async def work(self) -> None:
        node = await self.start()
        self.follow(node)
        await asyncio.gather(*(self.client(node, number) for number in range(CLIENTS)))
        await node.stop()

    async def client(self, node: MetadataServices, number: int) -> None:
        for _ in range(REQUESTS):
            self.clock.now += self.random.randrange(50)
            if self.random.random() < 0.1:
                self.fs.fail("write", errno.ENOSPC, path="__cluster_metadata", times=1)
            name = f"topic-{number}-{self.random.randrange(2)}"
            before = self.known.get(name, GONE)
            self.known[name] = OPEN
            try:
                self.known[name] = await self.request(node, name, before)
            except KafkaError as error:
                cause = error.__cause__ if error.code == ErrorCode.coordinator_load_in_progress else error
                assert isinstance(cause, KafkaError) and cause.code == ErrorCode.kafka_storage_error, error
                self.refused += 1
                if node.quorum.failure is None:  # rolled back
                    self.known[name] = before
            for _ in range(self.random.randrange(6)):
                await asyncio.sleep(0)

    async def request(self, node: MetadataServices, name: str, before: int | None) -> int | None:
        """Change one topic; the partitions that it has then."""
        choice = self.random.random()
        if choice < 0.15:
            self.producer_ids.append(await node.producer_ids.next())
            return before
        if before == GONE:
            count = self.random.randrange(1, 4)
            topic = {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
            await self.ask(node, ApiKey.CREATE_TOPICS, {"topics": [topic]}, "topics")
            return count
        if choice < 0.6:
            await self.ask(node, ApiKey.DELETE_TOPICS, {"topic_names": [name]}, "responses")
            return GONE
        assert before is not None
        topic = {"name": name, "count": before + 1, "assignments": None}
        await self.ask(node, ApiKey.CREATE_PARTITIONS, {"topics": [topic]}, "results")
        return before + 1

    async def ask(self, node: MetadataServices, key: ApiKey, request: dict[str, Any], rows: str) -> None:
        answer = await node.channel.send(key, request)
        assert [row.get("error_code", 0) for row in answer[rows]] == [0], answer

    async def look(self) -> MetadataImage:
        """Start again, compare with what was answered, stop."""
        node = await self.start()
        image = node.publisher.image
        for name, partitions in sorted(self.known.items()):
            topic = image.topic(name)
            found = GONE if topic is None else len(topic.partitions)
            assert partitions is OPEN or found == partitions, f"{name} has {found} partitions instead of {partitions}"
        assert len(set(self.producer_ids)) == len(self.producer_ids)
        assert image.next_producer_id > max(self.producer_ids, default=-1)
        await node.stop()
        return image


def partitions_of(image: MetadataImage) -> dict[str, int]:
    return {topic.name: len(topic.partitions) for topic in image.topics}


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_what_is_answered_while_others_are_under_way_is_true_after_a_crash(power_loss: bool) -> None:
    crashes = refused = in_flight = changes = 0
    for seed in SEEDS:
        cluster = Cluster(seed)
        if seed % 4:
            cluster.fs.crash_after(Random(seed).randrange(20, 120))
        crashed = asyncio.run(until_crash(cluster.fs, cluster.work()))
        crashes += crashed
        refused += cluster.refused
        in_flight = max(in_flight, cluster.in_flight_max)
        changes += cluster.changes
        cluster.fs.restart(power_loss=power_loss and crashed)
        first = asyncio.run(cluster.look())
        cluster.fs.restart(power_loss=power_loss)
        assert partitions_of(asyncio.run(cluster.look())) == partitions_of(first), f"seed {seed}"
    assert crashes >= len(SEEDS) // 2, "few crashes"
    assert refused >= len(SEEDS) // 2, "the disk was hardly ever full"
    assert in_flight >= 2, "decisions did not overlap"
    assert changes >= 5 * len(SEEDS)
