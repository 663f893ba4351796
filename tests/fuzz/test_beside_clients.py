"""Wrong requests and floods at a node in a process of its own, on which librdkafka's clients work meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random

import pytest
import uvloop

from bench.method.brokers import resident_mb
from tests.fuzz.beside import Work
from tests.fuzz.clients import Attacker, Done
from tests.fuzz.floods import FLOODS
from tests.fuzz.run import SETTINGS, shown
from tests.node import NodeProcess

STEPS = int(os.environ.get("OTTLA_FUZZ_STEPS", "300"))
"""Steps of each of two attackers; more by hand."""
GROWN_MB_MAX = 250
"""When all is over. Topics, groups and fetch sessions that the attack made are still there."""


@pytest.mark.parametrize("seed", [os.environ.get("OTTLA_SEED", "1")])
def test_clients_get_every_record_once_in_order(tmp_path: Path, seed: str) -> None:
    done = Done()
    flooded: list[str] = []
    with NodeProcess(tmp_path / "data", SETTINGS | {"connections.max.idle.ms": "600000"}) as node:
        work = Work(node.bootstrap)

        async def attack() -> None:
            attackers = [Attacker(f"fuzz-{number}", seed, node.port, done) for number in range(2)]
            dice = Random(seed)

            async def wrong(attacker: Attacker) -> None:
                for _ in range(STEPS):
                    if not work.problems and not done.problems:
                        await attacker.step()
                attacker.leave()

            async def flood() -> None:
                for _ in range(max(1, STEPS // 300)):
                    for each in dice.sample(FLOODS, len(FLOODS)):
                        if not work.problems and not done.problems:
                            await each(node.port, dice)
                            flooded.append(each.__name__)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(flood())
                for each in attackers:
                    tasks.create_task(wrong(each))

        assert node.process is not None
        work.start()
        before_mb = resident_mb(node.process.pid)
        try:
            uvloop.run(attack())
        finally:
            work.finish()
        assert node.process.poll() is None
        grown_mb = resident_mb(node.process.pid) - before_mb
    print(
        f"seed {seed}: the node has grown by {grown_mb:.0f} MB; {work.read} of {work.written}; {flooded}; {shown(done)}"
    )
    assert done.problems == []
    assert work.problems == []
    assert len(set(flooded)) == len(FLOODS)
    assert done.requests > STEPS
    assert min(work.written.values()) > 100
    assert work.read["alone"] == work.written
    assert grown_mb < GROWN_MB_MAX
    told = node.output.read_text()
    assert "Traceback" not in told and " ERROR " not in told, told
