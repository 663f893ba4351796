"""What the demo's pipelines get: the history of this repository, what runs on this machine now, and a bank's work.

Each source yields `Event`s; none of them knows of Kafka.
"""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

COMMITS_MAX = 5_000
SECTOR_BYTES = 512  # the unit of /proc/diskstats, whatever the disk says
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Event(NamedTuple):
    """Something that happened: its time (ms since the epoch), what it is about, and what is to be said."""

    timestamp_ms: int
    key: str
    value: dict[str, Any]


def page_views(repository: Path) -> list[Event]:
    """Its history as the activity of its authors, oldest first: each commit is a visit to the folders that it changed.

    None outside of a git repository.
    """
    command = [
        "git",
        "-C",
        str(repository),
        "log",
        f"--max-count={COMMITS_MAX}",
        "--name-only",
        "--format=%x1e%at%x1f%an",
    ]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    found = []
    for entry in result.stdout.split("\x1e")[1:]:
        head, _, files = entry.partition("\n")
        at, author = head.split("\x1f")
        for folder in sorted({file.partition("/")[0] if "/" in file else "" for file in files.split("\n") if file}):
            value = {"user": author, "page": f"/{folder}", "at": _iso(int(at) * 1000)}
            found.append(Event(int(at) * 1000, author, value))
    return sorted(found, key=lambda event: (event.timestamp_ms, event.value["page"]))


def transactions(count: int, seed: int) -> Iterator[Event]:
    """Transactions of a bank with a few customers. Some overdraw their account, some transactions come twice."""
    dice = random.Random(seed)
    customers = ["ada", "ben", "cyd", "dan", "eve", "fay", "gus", "hal"]
    now_ms = time.time_ns() // 1_000_000
    for number in range(count):
        kind = dice.choice(("deposit", "withdraw", "transfer", "transfer"))
        account, other = dice.sample(customers, 2)
        value = {"id": str(number), "kind": kind, "account": account, "amount": dice.randint(1, 10_000)}
        value |= {"at": _iso(now_ms + number), "to": other if kind == "transfer" else None}
        event = Event(now_ms + number, account, value)
        yield event
        if dice.random() < 0.05:
            yield event


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Metrics:
    """Processor, memory, disk and process metrics out of /proc; each `sample` tells what changed since the last."""

    def __init__(self) -> None:
        self._processors: dict[str, tuple[int, int]] = {}
        self._disks: dict[str, tuple[int, int]] = {}
        self._processes: dict[int, int] = {}
        self._at_ms: int | None = None

    def sample(self, now_ms: int) -> list[Event]:
        elapsed_s = 0.0 if self._at_ms is None else (now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        found = [*self._processor_load(), *_memory(), *self._disk_rates(elapsed_s), *self._busy_processes(elapsed_s)]
        at, host = _iso(now_ms), socket.gethostname()
        return [
            Event(now_ms, host, {"host": host, "name": name, "value": round(value, 2), "at": at, "unit": unit})
            for name, value, unit in found
        ]

    def _processor_load(self) -> Iterator[tuple[str, float, str]]:
        for line in Path("/proc/stat").read_text().splitlines():
            if not re.match(r"cpu\d", line):
                continue
            name, *fields = line.split()
            ticks = list(map(int, fields))
            idle, total = ticks[3] + ticks[4], sum(ticks[:8])
            idle_before, total_before = self._processors.get(name, (idle, total))
            self._processors[name] = (idle, total)
            if total > total_before:
                yield name, 100 * (1 - (idle - idle_before) / (total - total_before)), "%"

    def _disk_rates(self, elapsed_s: float) -> Iterator[tuple[str, float, str]]:
        for line in Path("/proc/diskstats").read_text().splitlines():
            _, _, name, *fields = line.split()
            if name.startswith(("loop", "ram")):
                continue
            read, written = int(fields[2]) * SECTOR_BYTES, int(fields[6]) * SECTOR_BYTES
            read_before, written_before = self._disks.get(name, (read, written))
            self._disks[name] = (read, written)
            if elapsed_s and written:
                yield f"disk_read.{name}", (read - read_before) / 1024 / elapsed_s, "KiB/s"
                yield f"disk_write.{name}", (written - written_before) / 1024 / elapsed_s, "KiB/s"

    def _busy_processes(self, elapsed_s: float, most: int = 5) -> list[tuple[str, float, str]]:
        loads: list[tuple[float, str]] = []
        seen: dict[int, int] = {}
        for directory in Path("/proc").iterdir():
            if not directory.name.isdigit():
                continue
            try:
                stat = (directory / "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            name = stat[stat.index("(") + 1 : stat.rindex(")")]
            fields = stat[stat.rindex(")") + 2 :].split()
            pid, ticks = int(directory.name), int(fields[11]) + int(fields[12])
            seen[pid] = ticks
            if elapsed_s and pid in self._processes:
                loads.append((100 * (ticks - self._processes[pid]) / _TICKS_PER_S / elapsed_s, name))
        self._processes = seen
        return [(f"process.{name}", load, "%") for load, name in sorted(loads, reverse=True)[:most] if load > 0]


def _memory() -> Iterator[tuple[str, float, str]]:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(lines[name].split()[0]) / 1024 for name in ("MemTotal", "MemAvailable"))
    yield "memory_used", total - available, "MiB"
