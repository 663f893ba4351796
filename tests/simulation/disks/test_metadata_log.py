"""The controller on a disk that crashes: a change that was answered is there after every restart, power loss or not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from ottla.config.server import ServerConfig
from ottla.drivers.metadata.metadata_services import MetadataServices
from ottla.errors import ErrorCode
from ottla.metadata.image import Endpoint, SecurityProtocol
from ottla.protocol.messages import ApiKey
from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem
from tests.simulation.world import ROOT, SimulatedClock

SETTINGS = {
    "log.dirs": ROOT,
    "metadata.log.max.record.bytes.between.snapshots": "400",
    "metadata.max.retention.bytes": "2000",
}
ENDPOINTS = {"PLAINTEXT": Endpoint("localhost", 9092, SecurityProtocol.PLAINTEXT)}


class Controller:
    """The metadata of a node that starts, crashes and restarts, and what it answered."""

    def __init__(self, seed: int) -> None:
        self.clock = SimulatedClock()
        self.random = Random(seed)
        self.fs = SimulatedFileSystem(Random(seed + 1), now_ms=self.clock.now_ms)
        self.fs.makedirs(ROOT)
        self.fs.fsync_all()
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self.producer_ids: list[int] = []
        self.cluster_ids: set[str] = set()
        self.number = 0

    async def start(self) -> MetadataServices:
        driver = MetadataServices(self.fs, self.clock, self.random, ServerConfig.load(overrides=SETTINGS))
        await driver.start()
        self.cluster_ids.add(driver.cluster_id)
        await driver.lifecycle.register(ENDPOINTS, driver.directory_ids)
        await driver.lifecycle.unfence()
        return driver

    async def work(self, rounds: int) -> None:
        driver = await self.start()
        self.check(driver)
        for _ in range(rounds):
            await asyncio.gather(self.create(driver), self.create(driver))
            await self.delete(driver)
            self.producer_ids.append(await driver.producer_ids.next())
            self.clock.now += 1000
        await driver.stop()

    async def create(self, driver: MetadataServices) -> None:
        self.number += 1
        name = f"topic-{self.number}"
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        request = {"topics": [topic], "timeout": 1000, "validate_only": False}
        response = await driver.channel.send(ApiKey.CREATE_TOPICS, request)
        assert response["topics"][0].get("error_code", ErrorCode.none) in (0, ErrorCode.none), response
        self.created.add(name)

    async def delete(self, driver: MetadataServices) -> None:
        name = min(self.created)
        self.created.discard(name)
        request = {"topics": [{"name": name, "topic_id": None}]}
        await driver.channel.send(ApiKey.DELETE_TOPICS, request)
        self.deleted.add(name)

    def check(self, driver: MetadataServices) -> None:
        names = set(driver.publisher.image.topics_by_name)
        assert self.created <= names, f"lost: {self.created - names}"
        assert not self.deleted & names, f"back: {self.deleted & names}"
        assert len(set(self.producer_ids)) == len(self.producer_ids), "a producer id was given twice"
        assert len(self.cluster_ids) == 1, "the directory has another identity"


def _but_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), SimulatedCrash):
        loop.default_exception_handler(context)


async def until_crash(fs: SimulatedFileSystem, work: Coroutine[Any, Any, None]) -> bool:
    """Run until done or until the disk is gone, whichever comes first; whether it crashed."""
    # A task that the crash ended and nobody awaits is not reported: that would happen within some other test.
    asyncio.get_running_loop().set_exception_handler(_but_crashes)
    task = asyncio.ensure_future(work)
    while not task.done() and not fs.crashed:  # noqa: ASYNC110  the disk has no event to wait for
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for each in left:  # some wait for their next turn, minutes away
        each.cancel()
    for outcome in await asyncio.gather(*left, task, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, SimulatedCrash | asyncio.CancelledError) and not fs.crashed:
            raise outcome
    return fs.crashed


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_what_the_controller_answered_survives_a_crash_at_any_step(power_loss: bool) -> None:
    whole = Controller(0)
    asyncio.run(whole.work(3))
    total = whole.fs.steps
    crashes = 0
    for step in range(total):
        controller = Controller(step)
        controller.fs.crash_after(step)
        if not asyncio.run(until_crash(controller.fs, controller.work(3))):
            continue
        crashes += 1
        if not controller.created:
            controller.cluster_ids.clear()  # nothing was answered yet
        controller.fs.restart(power_loss=power_loss)
        asyncio.run(controller.work(1))
        controller.fs.restart(power_loss=power_loss)
        asyncio.run(controller.work(0))
    assert total > 50 and crashes >= 0.95 * total
