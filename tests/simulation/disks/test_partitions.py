"""Partitions come and go while the node crashes: each is wholly there or not there, and belongs to its topic."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

import pytest

from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.storage.log_manager import LogManager
from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem
from tests.simulation import checks
from tests.simulation.world import ROOT, SMALL, SimulatedClock

TOPICS = {
    TopicPartition("a", 0): UUID(int=10),
    TopicPartition("a", 1): UUID(int=10),
    TopicPartition("b.c-d", 0): UUID(int=11),
}


class Partitions:
    """A log manager, and what it said it had done."""

    def __init__(self, seed: int) -> None:
        self.clock = SimulatedClock()
        self.fs = SimulatedFileSystem(Random(seed), now_ms=self.clock.now_ms)
        self.fs.makedirs(ROOT)
        self.fs.fsync_all()
        self.seed = seed
        self.created: set[TopicPartition] = set()
        self.deleted: set[TopicPartition] = set()
        self.records: dict[TopicPartition, int] = {}
        self.open()

    def open(self) -> None:
        self.manager = LogManager(self.fs, [ROOT], SMALL, self.clock, Random(self.seed))
        self.manager.lock()
        self.manager.load()

    def run(self) -> None:
        for key, topic_id in TOPICS.items():
            self.manager.create(key, topic_id, SMALL)
            self.created.add(key)
            for _ in range(3):
                self.append(key)
        self.clock.now += 100_000
        self.manager.periodic(self.clock.now)
        asyncio.run(self.manager.background(self.clock.now))
        for key in list(TOPICS)[1:]:
            self.created.discard(key)
            self.manager.delete(key)
            self.deleted.add(key)
        self.clock.now += 200_000
        asyncio.run(self.manager.background(self.clock.now))
        self.manager.shutdown()

    def append(self, key: TopicPartition) -> None:
        log = self.manager.get(key)
        assert log is not None
        batch = build_batch([SimpleRecord(self.clock.now, None, bytes(500))] * 2)
        log.append_as_leader(memoryview(batch), 0, now_ms=self.clock.now)
        log.high_watermark = log.log_end_offset
        self.records[key] = log.log_end_offset

    def check(self, *, power_loss: bool) -> None:
        files = self.fs.files(ROOT)
        for key, topic_id in TOPICS.items():
            log = self.manager.get(key)
            if log is None:
                assert power_loss or key not in self.created, key
                continue
            assert power_loss or key not in self.deleted, key
            assert log.topic_id in (topic_id, None)
            checks.batches(files, log.directory)
            checks.check_indexes(files, log.directory)
            if key in self.created and not power_loss:
                assert log.log_end_offset >= self.records.get(key, 0)
            again = self.manager.create(key, topic_id, SMALL)
            assert again is log


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_a_crash_at_any_step_of_creating_and_deleting(power_loss: bool) -> None:
    whole = Partitions(0)
    before = whole.fs.steps
    whole.run()
    total = whole.fs.steps - before
    for seed in range(2):
        for step in range(seed % 2, total, 2):
            world = Partitions(seed)
            world.fs.crash_after(step)
            with pytest.raises(SimulatedCrash):
                world.run()
            world.fs.restart(power_loss=power_loss)
            world.open()
            world.check(power_loss=power_loss)
            for key in TOPICS:
                if world.manager.get(key) is not None:
                    world.append(key)
            world.clock.now += 10**6
            asyncio.run(world.manager.background(world.clock.now))
            world.manager.shutdown()
            left = [name for name in world.fs.listdir(ROOT) if name.endswith("-delete")]
            assert not left, "what was scheduled for deletion goes after the restart"
