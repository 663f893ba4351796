"""A start that has much to recover: probes are answered, a signal ends it, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.filesystem import OsFileSystem
from ottla.server import main
from ottla.server.http.pages import health, readiness
from ottla.server.node import Node
from tests.unit.server.node import Client, batch, running

TOPICS = 5


@pytest.fixture
def crashed(tmp_path: Path) -> Iterator[Path]:
    """A directory as a node that was killed leaves it."""

    async def fill() -> None:
        async with running(str(tmp_path / "live")) as node:
            client = await Client.connect(node)
            for number in range(TOPICS):
                await client.create(f"t{number}")
                await client.produce(f"t{number}", batch(count=2))
            shutil.copytree(tmp_path / "live", tmp_path / "crashed")
            client.close()

    asyncio.run(fill())
    yield tmp_path / "crashed"


def new_node(directory: Path) -> Node:
    settings = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Node(ServerConfig.load(None, settings, {}), OsFileSystem(), SystemClock(), random.Random(1))


async def until_recovering(node: Node, starting: asyncio.Future[None]) -> None:
    while node.logs.progress is None:
        assert not starting.done(), "it started without yielding"
        await asyncio.sleep(0)


def test_probes_are_answered_while_logs_are_recovered(crashed: Path) -> None:
    asyncio.run(probe_while_recovering(crashed))


async def probe_while_recovering(crashed: Path) -> None:
    node = new_node(crashed)
    starting = asyncio.ensure_future(node.start())
    seen = []
    try:
        await until_recovering(node, starting)
        while node.logs.progress is not None:
            assert health(node)["status"] == "healthy"
            if readiness(node)["reasons"] not in seen:
                seen.append(readiness(node)["reasons"])
            await asyncio.sleep(0)
        await starting
        assert readiness(node)["status"] == "ready"
        assert [log.log_end_offset for log in node.logs] == [2] * TOPICS
    finally:
        await node.stop()
    total = TOPICS + 1  # the log of the metadata stands beside them
    numbers = [int(text.split("recovering log ")[1].split(" of ")[0]) for [text] in seen]
    assert numbers == sorted(numbers) and len(numbers) == TOPICS
    assert all(text.endswith(f" of {total} in {crashed}") for [text] in seen)


def test_a_stop_while_logs_are_recovered_leaves_them_to_the_next_start(crashed: Path) -> None:
    asyncio.run(stop_while_recovering(crashed))


async def stop_while_recovering(crashed: Path) -> None:
    node, stop = new_node(crashed), asyncio.Event()
    started = asyncio.ensure_future(main._started(node, stop))
    while node.logs.progress is None:
        assert not started.done()
        await asyncio.sleep(0)
    stop.set()
    assert not await started
    await node.stop()
    assert ".kafka_cleanshutdown" not in os.listdir(crashed)
    async with running(str(crashed)) as again:  # the lock is free, and what was left off is recovered
        assert [log.log_end_offset for log in again.logs] == [2] * TOPICS
        assert sum(log.recovered_bytes for log in again.logs) > 0
