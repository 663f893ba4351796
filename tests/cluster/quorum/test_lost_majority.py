"""docs/production/disasters.md, *A lost majority*: the steps in their order, with three nodes that are both.

The survivor was not in sync when the other two died, and their disks are gone. It keeps everything that it had.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.admin import create, leaders
from tests.cluster.brokers.test_life import consume, produce
from tests.cluster.brokers.test_replication import wait_in_sync
from tests.cluster.processes import QUICK, addresses, ottla_quorum, start_together
from tests.node import NodeProcess

TOPIC = "t"
PARTITIONS = 3


def elect_uncleanly(node: NodeProcess) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "topic", "elect", TOPIC, "--unclean", "-b", node.bootstrap]
    subprocess.run(command, env=node.environment(), check=True, capture_output=True, timeout=120)


def test_the_survivor_keeps_what_it_has(tmp_path: Path) -> None:
    nodes = dict(enumerate(ottla_quorum(tmp_path, settings={**QUICK, "min.insync.replicas": "2"}), start=1))
    survivor, second, third = nodes.values()
    try:
        start_together(nodes.values())
        assert create(survivor.bootstrap, TOPIC, PARTITIONS, factor=3) == 0
        kept = [f"first-{number}" for number in range(300)]
        produce(addresses(nodes), TOPIC, kept)
        wait_in_sync(nodes, TOPIC, 1, 2, 3)
        survivor.kill()
        others = {2: second, 3: third}
        wait_in_sync(others, TOPIC, 2, 3)
        produce(addresses(others), TOPIC, [f"second-{number}" for number in range(30)])
        for node in others.values():
            node.kill()
            shutil.rmtree(node.data)

        as_before = dict(second.settings)
        second.settings |= {"process.roles": "controller", "listeners": f"CONTROLLER://{second.controller}"}
        second.begin()
        survivor.start()
        assert [leader for leader, _ in leaders(survivor.bootstrap, TOPIC)] == [-1] * PARTITIONS
        elect_uncleanly(survivor)
        assert [leader for leader, _ in leaders(survivor.bootstrap, TOPIC)] == [1] * PARTITIONS

        second.stop()
        second.settings = as_before
        second.start()
        wait_in_sync({1: survivor, 2: second}, TOPIC, 1, 2)
        assert sorted(consume(addresses({1: survivor, 2: second}), TOPIC)) == sorted(kept)
        third.start()
        wait_in_sync(nodes, TOPIC, 1, 2, 3)
        survivor.stop()
        assert sorted(consume(addresses({2: second, 3: third}), TOPIC)) == sorted(kept)
    finally:
        for node in nodes.values():
            if node.process is not None:
                node.kill()
