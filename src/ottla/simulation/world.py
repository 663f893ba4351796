"""Machines with a real `Node` each, on simulated disks, and processes of clients, all on one virtual time and network.

Everything that can be seen from outside goes into the trace: what changes on a disk, what arrives over the network,
what clients learn, what is done to them, what a node logs. The same seed has to give the same trace.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from types import MethodType
from typing import Any, TypeVar

from ottla.config.server import ServerConfig
from ottla.errors import KafkaError, OttlaError
from ottla.server.node import Node
from ottla.simulation.faults.crash_points import end_of_event
from ottla.testing.disk import PlannedCrash, SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from ottla.testing.loop import SimulatedLoop, SimulatedTime, State
from ottla.testing.network import HostNetwork, SimulatedNetwork
from ottla.testing.threads import SimulatedMutex

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
PORT = 9092
CONTROL_PORT = 9093
DIRECTORY = "/data"

LOG_PARTITIONS = 2
"""Partitions of the topic of each kind of coordinator."""

SECOND_DIRECTORY = "/disk2"
"""The second log directory, in runs that have two."""

QUICK_S = (0.00005, 0.001)
"""What blocking work takes on a disk in good health."""

BUSY_S = (0.002, 0.05)
"""Disk latency of a busy machine, so that more happens between a write and its fsync."""

THREADS = 0.25
"""How much of what may be interrupted is, where clients take their time: each takes a real thread."""

RESTART_S = (0.05, 1.0)
"""After a crash."""


AWAITS_MAX = 300
"""A process that is to be killed at one of its next awaits is after so many events at the latest."""

AT_NEW_PLACE, AT_KNOWN_PLACE = 0.15, 0.01
"""How likely it is killed at each: where no process of this run ended before, and elsewhere."""


class Violation(AssertionError):
    """An invariant was violated."""


class ProcessDisk:
    """A machine's disk as one process sees it: blocking work takes its time."""

    def __init__(self, machine: Machine, loop: SimulatedLoop) -> None:
        self._machine = machine
        self._loop = loop
        self._random = machine.world.time.stream(f"work/{loop.name}")
        self.replacing = SimulatedMutex(loop)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._machine.disk, name)
        if isinstance(found, MethodType):
            self.__dict__[name] = found  # found at once from now on
        return found

    def run(self, work: Callable[[], T]) -> Any:
        seconds = self._random.uniform(*self._machine.disk_s)
        if self._machine.interleaving and (self._machine.world.pace == 1.0 or self._random.random() < THREADS):
            return self._loop.run_interleaved(work, seconds, self._pause_s)
        return self._loop.run_blocking(work, seconds)

    def mutex(self) -> SimulatedMutex:
        return SimulatedMutex(self._loop)

    def _pause_s(self) -> float | None:
        """For how long work stops before a disk call; None where it does not."""
        machine = self._machine
        if self._random.random() >= machine.interleaving:
            return None
        machine.world.counts["interleaved"] += 1
        return self._random.uniform(*machine.disk_s)


class ProcessClock:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def now_ms(self) -> int:
        return self._machine.now_ms()


class Machine:
    """One host with a disk, and the node that runs there, again and again."""

    def __init__(self, world: World, name: str, settings: Mapping[str, str]) -> None:
        self.world = world
        self.name = name
        self.random = world.time.stream(f"machine/{name}")
        self.skew_ms = 0
        self.disk_s = QUICK_S
        self.disk = SimulatedFileSystem(world.time.stream(f"disk/{name}"), now_ms=self.now_ms)
        self.disk.makedirs(DIRECTORY)
        self.disk.fsync_all()
        self.disk.observer = lambda what: world.trace(name, what)
        self.disk.before_call = self._before_call
        self.disk.on_crash = self._crashed
        self.interleaving = 0.0
        """Share of the disk calls of a thread at which other events happen."""
        self.settings = {
            "log.dirs": DIRECTORY,
            "log.retention.ms": "-1",
            "listeners": f"PLAINTEXT://{name}:{PORT}",
            "ottla.log.slow.request.ms": "-1",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": str(LOG_PARTITIONS),
            "num.partitions": "1",
            **settings,
        }
        self.node_id = int(self.settings.get("node.id", "1"))
        self.losses = 0
        """Power losses so far."""
        self.wipes = 0
        self.prepare: Callable[[], None] = lambda: None
        """Gives an empty disk what it needs before the first start."""
        self.loop: SimulatedLoop | None = None
        self.node: Node | None = None
        self.starts = 0
        self.wanted = True
        """Whether it is started again when it ends."""
        self.keeps_power = False
        """An fsync fails here and what is in the page cache stays: for the rest of the run."""
        self.crash_at_step = -1
        """Killed behind this event of its process."""
        self.seeks_crash = 0
        """Killed behind one of the next so many events; 0: none."""
        self.crash_random = world.time.stream(f"crash/{name}")
        self.power_loss = False
        """What the next crash is."""
        self.halts = False
        """The node ends its process by itself."""

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.world.time.now_s * 1000) + self.skew_ms

    @property
    def is_serving(self) -> bool:
        return self.loop is not None and self.node is not None and self.node.serving and not self.node.stopping

    def start(self) -> None:
        assert self.loop is None
        self.starts += 1
        self.loop = loop = self.world.process(f"{self.name}#{self.starts}")
        self.world.by_loop[loop] = self
        self.world.trace(self.name, "start")
        loop.create_task(self._run(loop, self.world.network.of(loop, self.name)))

    async def _run(self, loop: SimulatedLoop, network: HostNetwork) -> None:
        world = self.world
        config = ServerConfig.load(None, self.settings, {})
        disk: Any = ProcessDisk(self, loop)
        random = world.time.stream(f"node/{loop.name}")
        self.node = node = Node(config, disk, ProcessClock(self), random, network)
        node.failure.on_halt, node.failure.on_give_up = self._halted, self.stop
        try:
            await node.start()
            world.counts["started"] += 1
            world.trace(self.name, "serving")
        except (OttlaError, KafkaError, OSError) as error:
            world.counts["refused start"] += 1
            world.trace(self.name, f"cannot start: {type(error).__name__} {error}")
            try:
                await node.stop()
            except (OttlaError, KafkaError, OSError):
                pass
            self._ended(power_loss=False)

    def _ended(self, *, power_loss: bool, clean: bool = False) -> None:
        """The process is no more; it comes back after a while."""
        loop, self.loop, self.node = self.loop, None, None
        assert loop is not None
        loop.kill()
        self.crash_at_step, self.seeks_crash, self.halts = -1, 0, False
        faults = list(self.disk._faults)
        # After a failed fsync the page cache has what the disk has not, which no process can find out.
        power_loss = power_loss or any(fault.operation == "fsync" and fault.fired for fault in faults)
        power_loss = power_loss and not self.keeps_power
        self.world.network.ended(loop, self.name, power_loss=power_loss)
        capacity = self.disk.capacity_bytes
        self.disk.restart(power_loss=power_loss)
        self.disk._faults = faults  # a disk that fails does so for the next process too
        self.disk.capacity_bytes = capacity
        self.losses += power_loss
        self.world.losses += power_loss
        self.world.crashes += not clean
        self.world.on_end(self)
        self.world.network.loop.exactly_in(self.random.uniform(*RESTART_S), self._start_again)

    def _start_again(self) -> None:
        if self.wanted and self.loop is None:
            self.start()

    def comes_back(self) -> None:
        """Start it again, if it is not running."""
        self.wanted = True
        self._start_again()

    def _before_call(self) -> None:
        work = self.world.time.work
        if work is not None:
            work.at_disk_call()

    def _crashed(self) -> None:
        """The disk says that the crash which was planned is now: nothing of this process may run any further."""
        assert self.loop is not None
        self.loop.kill()

    def _halted(self) -> None:
        """The node ends its process: nothing of it may run any further."""
        assert self.loop is not None
        self.halts, self.power_loss = True, False
        self.loop.kill()

    # What is done to it.

    def crash(self, *, power_loss: bool) -> None:
        self.world.counts["power loss" if power_loss else "kill"] += 1
        self.world.trace(self.name, "power loss" if power_loss else "killed")
        self._ended(power_loss=power_loss)

    def wipe(self) -> None:
        """Replace its disk by an empty one."""
        if self.loop is not None:
            self._ended(power_loss=False)
        self.world.counts["wiped disk"] += 1
        self.world.trace(self.name, "wiped")
        self.world.on_wipe(self)
        self.wipes += 1
        self.world.wipes += 1
        self.disk.wipe()
        self.disk.makedirs(DIRECTORY)
        self.prepare()
        self.disk.fsync_all()

    def crash_at_disk(self, changes: int, *, power_loss: bool) -> PlannedCrash:
        self.power_loss = power_loss
        return self.disk.crash_after(changes)

    def crash_at_await(self, events: int, *, power_loss: bool) -> None:
        assert self.loop is not None
        self.power_loss = power_loss
        self.crash_at_step = self.loop.steps + events

    def crash_at_some_await(self, *, power_loss: bool) -> None:
        """Behind one of the next events, and rather one of a kind that no process of this run ended at."""
        self.power_loss = power_loss
        self.seeks_crash = AWAITS_MAX

    def stop(self) -> None:
        """Cleanly; then it starts again."""
        if not self.is_serving or self.loop is None or self.loop.state is not State.RUNNING:
            return
        self.world.counts["stop"] += 1
        self.loop.create_task(self._stop(self.loop))

    async def _stop(self, loop: SimulatedLoop) -> None:
        assert self.node is not None
        self.world.trace(self.name, "stop")
        await self.node.stop()
        if self.loop is loop:
            self.world.counts["stopped"] += 1
            self.world.trace(self.name, "stopped")
            self._ended(power_loss=False, clean=True)

    def after_step(self) -> None:
        """An event of its process is over, which may be the last."""
        loop = self.loop
        if loop is None:
            return
        if loop.state is State.DEAD:
            self.world.counts["halted" if self.halts else "crash at a disk call"] += 1
            self.crash(power_loss=self.power_loss)
        elif 0 <= self.crash_at_step <= loop.steps or (self.seeks_crash and self._finds_crash()):
            handle = self.world.time.handle
            assert handle is not None
            place = end_of_event(handle)
            self.world.trace(self.name, f"ends after: {place}")
            self.world.crashed_at[place] += 1
            self.world.counts["crash at an await"] += 1
            self.world.counts["places of crashes"] = len(self.world.crashed_at)
            self.crash(power_loss=self.power_loss)

    def _finds_crash(self) -> bool:
        """Whether one that comes at some event comes now."""
        self.seeks_crash -= 1
        handle = self.world.time.handle
        assert handle is not None
        chance = AT_KNOWN_PLACE if end_of_event(handle) in self.world.crashed_at else AT_NEW_PLACE
        return self.crash_random.random() < chance or not self.seeks_crash


class World:
    """All of it. `trace` is what happened, line by line."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.time = SimulatedTime(seed)
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.losses = 0
        """Power losses so far."""
        self.crashes = 0
        """Ends of processes other than by a stop."""
        self.wipes = 0
        """Disks that were replaced by empty ones."""
        self.crashed_at: Counter[str] = Counter()
        """What the last event of a node was that was killed at an await."""
        self.elections: Counter[tuple[str, int]] = Counter()
        """Changes of leaders, by partition."""
        self.unclean: Counter[tuple[str, int]] = Counter()
        """Elections of a replica that was not in sync."""
        self.deposed: dict[tuple[str, int], dict[str, None]] = {}
        """Machines that lead a partition yet, and have not heard of such an election."""
        self.rotten: set[tuple[str, tuple[str, int]]] = set()
        """Machines and partitions of which a bit was flipped on the disk."""
        self.violations: list[str] = []
        self.pace = 1.0
        """Factor of clients' pauses over those of a short run."""
        self.is_over = False
        """What dead processes still say means nothing."""
        self.network = SimulatedNetwork(self.time, trace=self.trace)
        self.watch: Callable[[Machine], None] = lambda machine: None
        """Called behind each event of a node."""
        self.on_end: Callable[[Machine], None] = lambda machine: None
        """Called when the process of a node is gone."""
        self.on_wipe: Callable[[Machine], None] = lambda machine: None
        """Called when a disk is about to be replaced by an empty one."""
        self.may_coordinate: Callable[[str, str], bool] = lambda host, group: True
        """Whether a host has a group by the newest metadata; one that is cut off may not know that it has not."""
        self.machines: dict[str, Machine] = {}
        self.by_loop: dict[SimulatedLoop, Machine] = {}
        self._loops: list[SimulatedLoop] = [self.network.loop]
        self.time.after_step = self._after_step

    def random(self, name: str) -> Random:
        return self.time.stream(name)

    def machine(self, name: str, settings: Mapping[str, str]) -> Machine:
        made = self.machines[name] = Machine(self, name, settings)
        return made

    def process(self, name: str) -> SimulatedLoop:
        loop = self.time.loop(name)
        self._loops.append(loop)
        return loop

    def trace(self, who: str, what: str) -> None:
        self.lines.append(f"{self.time.now_s:.6f} {self.time.steps} {who}: {what}")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def violated(self, what: str) -> Violation:
        """Note it, and end what found it. Never returns."""
        self.trace("VIOLATION", what)
        self.violations.append(what)
        raise Violation(what)

    def run(self, work: Coroutine[Any, Any, None], seconds_max: float, name: str = "main") -> None:
        """Let `work` be done by a process of its own, and everything else meanwhile."""
        task = self.process(name).create_task(work)
        self.time.run(until=lambda: task.done() or self.violations, seconds_max=seconds_max)
        if task.done():
            task.result()

    def _after_step(self, loop: SimulatedLoop) -> None:
        machine = self.by_loop.get(loop)
        if machine is not None and machine.loop is loop:
            if loop.state is State.DEAD or machine.crash_at_step >= 0 or machine.seeks_crash:
                machine.after_step()
            if machine.loop is loop:
                self.watch(machine)
        if loop.failures:
            failure = loop.failures.pop(0)
            error = failure.get("exception")
            if not isinstance(error, SimulatedCrash | Violation | KafkaError | OSError):
                self.violations.append(f"{loop.name}: {failure.get('message')}: {error!r}")

    def close(self) -> None:
        for loop in self._loops:
            for error in loop.unretrieved():
                if not isinstance(error, SimulatedCrash | Violation | KafkaError | OSError):
                    trace = "".join(traceback.format_exception(error))
                    self.violations.append(f"{loop.name}: a task ended with {error!r}\n{trace}")
        self.is_over = True
        for machine in self.machines.values():
            machine.disk.observer = None
            machine.disk.crash()
        self.network.trace = lambda who, what: None
        for loop in self._loops:
            loop.bury()

    @contextmanager
    def logging(self) -> Iterator[None]:
        """What nodes log goes into the trace; an exception in there that is no disk's is a bug."""
        logger = logging.getLogger(__package__.partition(".")[0])
        handler = _TraceHandler(self)
        before = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before[0])  # which also forgets what was found to be enabled
            logger.propagate = before[1]


class _TraceHandler(logging.Handler):
    """Takes what this thread logs: others in the process are no part of the world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.is_over or record.thread != self._thread:
            return
        error = record.exc_info[1] if record.exc_info else None
        found = getattr(record, "ottla_fields", {})
        shown = {name: value for name, value in dict(found).items() if not name.endswith("ms")}
        self._world.trace("log", f"{record.levelname} {record.getMessage()} {shown} {error!r}")
        if error is not None and not isinstance(error, OSError | KafkaError | SimulatedCrash):
            self._world.violations.append(f"logged: {record.getMessage()}: {error!r}")
