"""Bits flip on the disks of running nodes, under load, and nodes are killed in between: what was acknowledged survives,
and all replicas become healthy.

One disk rots at a time, and only what its readers have behind them, so that no record is damaged in all of its copies
and no client has to meet it first.
"""

from __future__ import annotations

import posixpath

import pytest

from ottla.server.http.pages import damage_of
from ottla.simulation.world import DIRECTORY, Machine
from tests.simulation.disks.test_failed_directory import NODES, PARTITIONS, TOPIC, Loaded
from tests.simulation.test_three_nodes import Cluster

ROUNDS = 3
SETTINGS = {"log.dirs": DIRECTORY, "min.insync.replicas": "1"}


def aside(machine: Machine) -> int:
    return sum("-stray" in name for name in machine.disk.listdir(DIRECTORY))


class Rotting(Loaded):
    """Flips bits."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, SETTINGS)
        self.random = self.world.random("rot")
        self.flipped: list[str] = []

    async def rot(self, machine: Machine, *, kill: Machine | None) -> None:
        """Flip one bit in the older half of a log, wait until the log is given up and all are in sync again."""
        number = self.random.randrange(PARTITIONS)
        path = posixpath.join(DIRECTORY, f"{TOPIC}-{number}", f"{0:020d}.log")
        size, before = machine.disk.size(path), aside(machine)
        bit = self.random.randrange(size // 2 * 8)
        machine.disk.flip_bit(path, bit)
        self.flipped.append(f"{machine.name}: bit {bit % 8} of byte {bit // 8} of {path}")
        node = machine.node
        assert node is not None and machine.loop is not None
        machine.loop.call_soon(lambda: node.damaged_logs.scrubber.scrub_all())
        if kill is not None:
            kill.crash(power_loss=False)
        await self.until(lambda: aside(machine) == before + 1, 60)
        if kill is not None:
            kill.start()
        await self.until(self.is_settled)
        await self.until(self.all_in_sync)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_rots_on_one_disk_is_fetched_again_from_another(seed: int) -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Rotting)
        await cluster.load()
        for number in range(ROUNDS):
            await cluster.more_is_acknowledged()
            machine, other = cluster.random.sample(cluster.machines, 2)
            await cluster.rot(machine, kill=other if number % 2 else None)
        await cluster.more_is_acknowledged()
        await cluster.end()
        assert len(cluster.flipped) == ROUNDS == sum(aside(each) for each in cluster.machines), cluster.flipped
        for name in NODES:
            node = cluster.world.machines[name].node
            assert node is not None and not damage_of(node)

    Rotting(seed).run(work)
