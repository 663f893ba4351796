"""What breaks in a run: processes, power, network, disks and clocks, one after the other."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeAlias

from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.groups import TOPIC
from ottla.simulation.world import QUICK_S, World
from ottla.testing.disk import OPERATIONS, Fault

FaultKind: TypeAlias = Callable[[], Awaitable[None]]

NODE = "node1"
CONTROL = "control"

CLUSTER = "cluster"
"""Runs of this kind have a controller and a broker on machines of their own; a seed does not choose it."""

ERRORS_ELSEWHERE = 0.6
"""How many of the disk errors that could be of reads and writes are of an operation and a path of all there are."""

OF_STARTS = "size", "listdir"
"""Operations that are nearly all of starts."""
SECONDS_OF_STARTS = 5
"""For so long such an error is waited for."""

PARTS = ".log", ".index", ".snapshot", "__cluster_metadata", "__consumer_offsets", f"{TOPIC}-", "checkpoint"
PATHS = *["/"] * 8, *PARTS
"""What the path of such an error has in it."""

SLOW_S = 0.05, 0.5
"""What blocking work takes on a disk that has far too much to do."""

FAULT_SECONDS = 12.0
"""How long faults are injected; a fault comes about every second."""


class Nemesis:
    """Breaks things, one after the other."""

    def __init__(self, world: World, clients: Sequence[Client], kind: str) -> None:
        self.world = world
        self.machines = list(world.machines.values())
        self.machine = self.machines[0]
        """The one that the present fault is about."""
        self.clients = clients
        self.random: Random = world.random("nemesis")
        self.of_disks: Random = world.random("nemesis/disks")
        """What a disk error is, so that it changes nothing else of a run."""
        network: list[FaultKind] = [
            self._reset,
            self._half_open,
            self._partition,
            self._one_way,
            self._clog,
            self._kill_client,
        ]
        killing: list[FaultKind] = [
            self._kill,
            self._kill_at_await,
            self._kill_at_disk,
            self._kill_at_disk,
            self._stop,
            self._pause,
        ]
        power: list[FaultKind] = [
            self._power,
            self._power_at_await,
            self._power_at_disk,
            self._power_at_disk,
            self._power_at_disk,
        ]
        disk: list[FaultKind] = [
            self._full,
            self._full,
            self._read_error,
            self._write_error,
            self._fsync_error,
            self._slow,
        ]
        faults: dict[str, list[FaultKind]] = {
            "calm": [],
            "network": network,
            "kill": [*killing, self._kill_client],
            "power": [*power, self._stop],
            "disk": [*disk, self._kill],
            "mixed": [*network, *killing, *power, *disk, self._jump],
            CLUSTER: [*network, *killing, *power, *[self._between] * 4, self._slow],
        }
        self.faults = faults[kind]

    async def run(self) -> None:
        until_s = self.world.time.now_s + FAULT_SECONDS
        if self.faults and self.random.random() < 0.2:
            await asyncio.sleep(FAULT_SECONDS / 4)
        while self.world.time.now_s < until_s:
            await asyncio.sleep(self.random.uniform(0.1, 1.2))
            if self.faults:
                self.machine = self.random.choice(self.machines)
                await self.random.choice(self.faults)()
                self.world.counts["fault"] += 1

    def heal(self) -> None:
        self.world.trace("nemesis", "heals everything")
        self.world.network.heal()
        for machine in self.machines:
            machine.disk.heal()
            machine.disk_s = QUICK_S
            if machine.loop is not None:
                machine.loop.resume()

    def _says(self, what: str) -> None:
        self.world.trace("nemesis", what)
        self.world.counts[f"nemesis: {what.split(':')[0]}"] += 1

    async def _lasting(self, seconds: float) -> None:
        await asyncio.sleep(self.random.uniform(0.1, 2 * seconds))

    # The network.

    def _client(self) -> str:
        return self.random.choice(self.clients).name

    async def _reset(self) -> None:
        found = self.world.network.connections()
        if found:
            end = self.random.choice(found)
            self._says(f"reset: {end.name}")
            self.world.network.reset(end)

    async def _half_open(self) -> None:
        found = self.world.network.connections()
        if found:
            end = self.random.choice(found)
            self._says(f"half open: {end.name}")
            self.world.network.half_open(self.random.choice((end, end.peer)))

    async def _partition(self) -> None:
        who = self.random.sample(self.clients, self.random.randint(1, len(self.clients)))
        self._says(f"partition: {', '.join(each.name for each in who)}")
        for each in who:
            self.world.network.cut(each.name, NODE)
            self.world.network.cut(NODE, each.name)
        await self._lasting(2)
        self.world.network.heal()

    async def _one_way(self) -> None:
        name = self._client()
        ways = [(name, NODE), (NODE, name)]
        source, target = self.random.choice(ways)
        self._says(f"one way: {source} to {target}")
        self.world.network.cut(source, target)
        await self._lasting(2)
        self.world.network.heal()

    async def _clog(self) -> None:
        name = self._client()
        self._says(f"clog: {name}")
        self.world.network.clog(NODE, name, self.random.uniform(0.5, 5))
        self.world.network.clog(name, NODE, self.random.uniform(0.5, 5))

    async def _between(self) -> None:
        """The broker and its controller do not reach each other, or one does not reach the other."""
        ways = [(NODE, CONTROL), (CONTROL, NODE)]
        cut = self.random.choice((ways, ways[:1], ways[1:]))
        self._says(f"between machines: {cut}")
        for source, target in cut:
            self.world.network.cut(source, target)
        await self._lasting(3)
        self.world.network.heal()

    async def _kill_client(self) -> None:
        self._says("client")
        self.random.choice(self.clients).crash()

    # The process.

    async def _kill(self) -> None:
        if self.machine.loop is not None:
            self._says("kill")
            self.machine.crash(power_loss=False)

    async def _power(self) -> None:
        if self.machine.loop is not None:
            self._says("power")
            self.machine.crash(power_loss=True)

    async def _kill_at_await(self) -> None:
        await self._at_await(power_loss=False)

    async def _power_at_await(self) -> None:
        await self._at_await(power_loss=True)

    async def _at_await(self, *, power_loss: bool) -> None:
        """Crash at one of the next awaits, and often also at one of the start that follows."""
        for _ in range(self.random.choice((1, 1, 2, 3, 4))):
            if self.machine.loop is not None:
                self._says(f"crash at an await: power loss {power_loss}")
                self.machine.crash_at_some_await(power_loss=power_loss)
            await asyncio.sleep(0.5)

    async def _kill_at_disk(self) -> None:
        await self._at_disk(power_loss=False)

    async def _power_at_disk(self) -> None:
        await self._at_disk(power_loss=True)

    async def _at_disk(self, *, power_loss: bool) -> None:
        """Cut a change short, and often another one of the start that follows."""
        for _ in range(self.random.choice((1, 1, 2, 3))):
            if self.machine.loop is not None:
                self._says(f"crash at a disk call: power loss {power_loss}")
                self.machine.crash_at_disk(self.random.choice((0, 1, 2, 4, 8, 16, 30)), power_loss=power_loss)
            await asyncio.sleep(0.5)

    async def _stop(self) -> None:
        self._says("stop")
        self.machine.stop()

    async def _pause(self) -> None:
        loop = self.machine.loop
        if loop is not None:
            self._says("pause")
            loop.pause()
            await self._lasting(2)
            loop.resume()

    # The disk and the clock.

    async def _full(self) -> None:
        self._says("full disk")
        disk = self.machine.disk
        disk.capacity_bytes = sum(map(len, disk.files().values())) + self.random.choice((0, 100, 2000))
        await self._lasting(1)
        disk.heal()

    async def _read_error(self) -> None:
        await self._error("read", "", restart=False)

    async def _write_error(self) -> None:
        await self._error("write", self.random.choice((".log", ".index", "/")), restart=False)

    async def _fsync_error(self) -> None:
        await self._error("fsync", ".log", restart=True)

    async def _error(self, operation: str, path: str, *, restart: bool) -> None:
        """A log that met an error stays offline until the next start, which therefore follows."""
        if operation == "fsync" and self.random.random() < 0.5:
            self._says("failed fsync without a power loss")
            self.machine.keeps_power, restart = True, False
        skip, times, starts = self.random.randrange(8), 2, False
        if operation != "fsync" and self.of_disks.random() < ERRORS_ELSEWHERE:
            operation, path = self.of_disks.choice(sorted(OPERATIONS)), self.of_disks.choice(PATHS)
            skip, times = self.of_disks.choice((0, 0, 1, 3)), self.of_disks.choice((1, 2, 1000))
            restart = operation == "fsync"  # the page cache has what the disk has not
            starts = self.of_disks.random() < 0.5 or operation in OF_STARTS  # which a running node hardly does
        self._says(f"disk error: {operation} {path}")
        fault = self.machine.disk.fail(operation, errno.EIO, path=path, skip=skip, times=times)
        if starts and self.machine.loop is not None:
            self.machine.crash(power_loss=False)
        await self._lasting(1)
        if operation in OF_STARTS and not await self._fired(fault):
            fault.path, fault.skip = "/", 0  # no start looks there, or not so often
            if self.machine.loop is not None:
                self.machine.crash(power_loss=False)
            await self._fired(fault)
        self.world.counts["disk error"] += fault.fired
        self.world.counts[f"disk error of {operation}"] += fault.fired
        self.machine.disk.heal()
        if not fault.fired:
            return
        if self.machine.loop is not None:
            self.machine.crash(power_loss=restart)
        elif restart and not self.machine.keeps_power:
            self.machine.disk.restart(power_loss=True)
            self.world.losses += 1

    async def _fired(self, fault: Fault) -> bool:
        """Wait for a fault to strike, some seconds at most, without drawing from what other faults draw from."""
        for _ in range(SECONDS_OF_STARTS):
            if not fault.fired:
                await asyncio.sleep(1)
        return fault.fired > 0

    async def _slow(self) -> None:
        self._says("slow disk")
        before, self.machine.disk_s = self.machine.disk_s, SLOW_S
        await self._lasting(2)
        self.machine.disk_s = before

    async def _jump(self) -> None:
        self._says("clock")
        self.machine.skew_ms += self.random.choice((-5000, -100, 3000, 60_000))
