"""A start that has much to recover: probes are answered, a signal ends it, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.filesystem import OsFileSystem
from ottla.network import SystemNetwork
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
    return Node(ServerConfig.load(None, settings, {}), OsFileSystem(), SystemClock(), random.Random(1), SystemNetwork())


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
        assert sum(log.recovery.recovered_bytes for log in again.logs) > 0


OTTLA_MODULES_MAX = 185
"""At the start of a node that is alone. Packages do not count. Each costs every start up to a millisecond, and memory:
what is needed later, or by clusters only, is imported there."""
NOT_AT_A_START = (
    "ottla.cli", "ottla.controller.directories", "ottla.controller.isr", "ottla.controller.reassignments",
    "ottla.controller.rare_requests", "ottla.drivers.metadata.away_brokers", "ottla.drivers.controller.broker_watch",
    "ottla.drivers.controller.controller_link", "ottla.drivers.controller.controller_registration",
    "ottla.drivers.replication.isr_updater",
    "ottla.drivers.quorum.metadata_follower", "ottla.drivers.nodes.node_client", "ottla.drivers.nodes.node_connection",
    "ottla.drivers.quorum.quorum_changes", "ottla.drivers.quorum.quorum_epochs", "ottla.drivers.quorum.quorum_peers",
    "ottla.drivers.replication.replica_fetcher", "ottla.drivers.replication.replication", "ottla.quorum.changes",
    "ottla.protocol.records.old_formats", "ottla.server.legacy",
    "ottla.server.produce.refusals", "ottla.replication.follower", "ottla.server.handlers.records.fetch",
    "ottla.server.http",
    "ottla.storage.recovery.repair", "ottla.testing", "ottla.simulation", "argparse", "email", "zipfile",
    "importlib.metadata", "http", "h11", "cyclopts", "rich", "confluent_kafka",
)  # fmt: skip


FAULTS = """if True:
    import resource, sys
    from ottla.config.server import ServerConfig
    from ottla.server import main

    async def attend(node, stop):
        [bytes(300_000) for _ in range(3)]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(100):
            [bytes(300_000) for _ in range(3)]
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        stop.set()

    main.run(ServerConfig.load(None, {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}, {}), attend)
"""


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="only glibc gives memory back so soon")
@pytest.mark.parametrize("interpreted", ["", "1"], ids=["compiled", "interpreted"])
def test_what_a_node_frees_serves_what_comes_next(tmp_path: Path, interpreted: str) -> None:
    command = [sys.executable, "-c", FAULTS, str(tmp_path)]
    environment = {**os.environ, "OTTLA_INTERPRETED": interpreted}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert int(done.stdout.split()[-1]) < 1_000, done.stderr  # 3,600 with glibc's own thresholds


def test_a_node_that_is_alone_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    code = """if True:
        import asyncio, sys
        from ottla.config.server import ServerConfig
        from ottla.server import main

        async def attend(node, stop):
            print(*sys.modules)
            stop.set()

        main.run(ServerConfig.load(None, {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}, {}), attend)
    """
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300)
    loaded = done.stdout.split()
    assert "ottla.server.node" in loaded, done.stderr
    assert not set(NOT_AT_A_START) & set(loaded)
    packages = {name.rpartition(".")[0] for name in loaded}
    assert len([name for name in loaded if name.startswith("ottla") and name not in packages]) <= OTTLA_MODULES_MAX


def test_a_stop_loads_nothing(tmp_path: Path) -> None:
    """An upgrade replaces a node's files before it is stopped: what closes its logs must be there already."""
    code = """if True:
        import sys
        from ottla.config.server import ServerConfig
        from ottla.server import main

        loaded = set()

        async def attend(node, stop):
            loaded.update(sys.modules)
            stop.set()

        main.run(ServerConfig.load(None, {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}, {}), attend)
        print("later:", *sorted(sys.modules.keys() - loaded))
    """
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "later:", done.stderr


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_node_that_serves_loads_what_clients_ask_first(tmp_path: Path, loop: str) -> None:
    """Before they ask: nobody is served while a handler is imported."""
    code = """if True:
        import asyncio, sys
        from ottla.config.server import ServerConfig
        from ottla.server import main
        from ottla.server.handlers import TABLE

        names = ["ottla.server.handlers." + TABLE[key].module for key in main.ASKED_FIRST]

        async def attend(node, stop):
            async def watch():
                turns = [0]
                while turns[-1] < len(names):
                    await asyncio.sleep(0)
                    turns.append(len(sys.modules.keys() & set(names)))
                print("at once:", max(after - before for before, after in zip(turns, turns[1:])))
                stop.set()

            attend.watching = asyncio.ensure_future(watch())

        settings = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0", "ottla.event.loop": sys.argv[2]}
        main.run(ServerConfig.load(None, settings, {}), attend)
    """
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), loop], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["at once: 1"], done.stderr


def test_each_module_that_is_not_loaded_exists() -> None:
    """A renamed one would be loaded unseen."""
    assert not [name for name in NOT_AT_A_START if find_spec(name) is None]
