"""This machine's own data as events: what the package manager did, what the repository went through, what runs now.

Each source yields `Event`s; none of them knows of Kafka.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE_LINES_MAX = 20_000
"""The newest lines of the package manager's logs: months of an ordinary machine."""
COMMITS_MAX = 5_000
SECTOR_BYTES = 512  # the unit of /proc/diskstats, whatever the disk says
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Event(NamedTuple):
    """Something that happened: its time (ms since the epoch), what it is about, and what is to be said."""

    timestamp_ms: int
    key: str
    value: dict[str, Any]


_DPKG_LINE = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:status (?P<state>\S+)|(?P<action>\S+)) (?P<package>\S+) (?P<versions>.*)"
)


def package_events(logs: Path = Path("/var/log")) -> Iterator[Event]:
    """One event a line of dpkg's logs, oldest first; none on a machine without dpkg."""
    lines: list[str] = []
    for path in sorted(logs.glob("dpkg.log*"), key=lambda path: path.stat().st_mtime):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", errors="replace") as stream:
            lines += stream
    for line in lines[-PACKAGE_LINES_MAX:]:
        match = _DPKG_LINE.match(line)
        if match is None or match["action"] == "startup":
            continue
        moment = datetime.fromisoformat(match[1])
        package, _, architecture = match["package"].partition(":")
        yield Event(
            int(moment.timestamp() * 1000),
            package,
            {
                "action": match["action"] or "status",
                "state": match["state"],
                "package": package,
                "architecture": architecture,
                "versions": match["versions"].split(),
            },
        )


def commit_events(repository: Path) -> Iterator[Event]:
    """One event a commit with the sum of its changes, oldest first; none outside of a git repository."""
    command = ["git", "-C", str(repository), "log", "--reverse", f"--max-count={COMMITS_MAX}", "--numstat",
               "--format=%x1e%H%x1f%at%x1f%an%x1f%s"]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    for entry in result.stdout.split("\x1e")[1:]:
        head, _, changes = entry.partition("\n")
        commit, at, author, subject = head.split("\x1f", 3)
        counts = [line.split("\t") for line in changes.splitlines() if line.count("\t") == 2]
        added, deleted = (sum(int(count[i]) for count in counts if count[i].isdigit()) for i in (0, 1))
        value = {"commit": commit, "author": author, "subject": subject, "files": len(counts)}
        yield Event(int(at) * 1000, author, value | {"added": added, "deleted": deleted})


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
        return [
            Event(now_ms, f"{metric}/{name}", {"metric": metric, "name": name, "value": round(value, 2), "unit": unit})
            for metric, name, value, unit in found
        ]

    def _processor_load(self) -> Iterator[tuple[str, str, float, str]]:
        for line in Path("/proc/stat").read_text().splitlines():
            if not re.match(r"cpu\d", line):
                continue
            name, *fields = line.split()
            ticks = list(map(int, fields))
            idle, total = ticks[3] + ticks[4], sum(ticks[:8])
            idle_before, total_before = self._processors.get(name, (idle, total))
            self._processors[name] = (idle, total)
            if total > total_before:
                yield "cpu", name, 100 * (1 - (idle - idle_before) / (total - total_before)), "%"

    def _disk_rates(self, elapsed_s: float) -> Iterator[tuple[str, str, float, str]]:
        for line in Path("/proc/diskstats").read_text().splitlines():
            _, _, name, *fields = line.split()
            if name.startswith(("loop", "ram")):
                continue
            read, written = int(fields[2]) * SECTOR_BYTES, int(fields[6]) * SECTOR_BYTES
            read_before, written_before = self._disks.get(name, (read, written))
            self._disks[name] = (read, written)
            if elapsed_s and written:
                yield "disk_read", name, (read - read_before) / 1024 / elapsed_s, "KiB/s"
                yield "disk_write", name, (written - written_before) / 1024 / elapsed_s, "KiB/s"

    def _busy_processes(self, elapsed_s: float, most: int = 5) -> list[tuple[str, str, float, str]]:
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
        return [("process", name, load, "%") for load, name in sorted(loads, reverse=True)[:most] if load > 0]


def _memory() -> Iterator[tuple[str, str, float, str]]:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(lines[name].split()[0]) / 1024 for name in ("MemTotal", "MemAvailable"))
    yield "memory", "used", total - available, "MiB"
