"""The sides of every comparison: how they are started, stopped, and what their processes cost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from peers.kafka import KafkaPeer, free_port, wait_until_answering


class Side:
    """A broker as a process on a directory of its own."""

    name: str
    port: int
    data: Path

    @property
    def pid(self) -> int:
        raise NotImplementedError

    def start(self) -> float:
        """Start and return the seconds until the first answered request."""
        raise NotImplementedError

    def stop(self) -> float:
        """Stop cleanly and return the seconds that took."""
        raise NotImplementedError

    def stop_and_delete(self) -> float:
        """Stop, delete the data, and return the seconds that the stop took."""
        took = self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        return took


class Ottla(Side):
    name = "ottla"

    def __init__(self, directory: Path, settings: dict[str, str] | None = None, source: Path | None = None) -> None:
        self.data = directory
        self.port = free_port()
        self.environment = dict(os.environ) if source is None else environment(source)
        self.settings = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", **(settings or {})}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> float:
        overrides = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        start = time.perf_counter()
        with open(self.data.with_name(self.data.name + ".out"), "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ottla.cli.main", "server", "start", str(self.data), *overrides],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env=self.environment,
            )
        wait_until_answering("127.0.0.1", self.port, 120, self.process)
        return time.perf_counter() - start

    def stop(self) -> float:
        start = time.perf_counter()
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None
        return time.perf_counter() - start


def environment(source: Path) -> dict[str, str]:
    """Environment in which this interpreter runs the package below `source`, not the one that is installed."""
    return {**os.environ, "PYTHONPATH": str(source)}


class Base(Ottla):
    """A node of another commit."""

    name = "base"


class Kafka(Side):
    name = "kafka"

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.peer = KafkaPeer(directory, settings=settings)
        self.peer.format()
        self.data = self.peer.data
        self.port = self.peer.port

    @property
    def pid(self) -> int:
        assert self.peer.process is not None
        return self.peer.process.pid

    def start(self) -> float:
        start = time.perf_counter()
        self.peer.start(ready_s=300)
        return time.perf_counter() - start

    def stop(self) -> float:
        start = time.perf_counter()
        self.peer.stop()
        return time.perf_counter() - start


_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of Linux: what the scheduler has counted."""

SIDES: dict[str, Callable[[Path, dict[str, str] | None], Side]] = {"ottla": Ottla, "kafka": Kafka}
SOURCES: dict[str, Path | None] = {"ottla": None}
"""Directory of the package of each side that is Ottla; None for the tree that measures."""


def add_base(source: Path) -> None:
    """Make the package below `source` a side, called "base"."""
    SIDES[Base.name] = partial(Base, source=source)
    SOURCES[Base.name] = source


def make(name: str, base: Path, settings: dict[str, str] | None = None) -> Side:
    """A broker on a fresh directory below `base`."""
    directory = base / f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return SIDES[name](directory, settings)


class WarmBrokers:
    """A broker of each side, all running at once; only the one that is measured gets load."""

    def __init__(self, sides: Sequence[str], base: Path, settings: Mapping[str, str] | None = None) -> None:
        self.settings = dict(settings or {})
        self.loaded_s: dict[str, float] = {}
        """Seconds that each side has been under load."""
        self.brokers: dict[str, Side] = {}
        try:
            for name in sides:
                self.brokers[name] = make(name, base, self.settings)
                self.brokers[name].start()
                self.loaded_s[name] = 0.0
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop_and_delete()
        self.brokers.clear()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads, those that have ended too; exact to the nanosecond."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)  # the kernel's clock of another process


def resident_mb(pid: int) -> float:
    """Resident memory in MB, of which anonymous and file-backed pages both count."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0
