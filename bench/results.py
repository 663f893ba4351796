"""What a run of the benchmarks found, kept as JSON: the tables, the figures they were made of, when, where, from what.

`docs/performance.json` is the file from which the documentation's tables are rendered.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from bench.method import counters, tcp
from bench.tables import Run, Section

ROOT = Path(__file__).resolve().parents[1]


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GB of memory, "
        f"Linux {platform.release()}, TCP {tcp.congestion_control()}, Python {platform.python_version()}"
    )


MEASURED = ("src", "bench", "peers")
"""The folders that decide what a figure is: a commit that changes none of them measures the same code."""
DIRTY = "-dirty"


@cache
def commit() -> str:
    """The last commit that changed what is measured, with `DIRTY` behind it if the files differ from that commit.
    Empty outside a repository."""
    name = _git("log", "-1", "--abbrev=12", "--format=%h", "--", *MEASURED)
    return name + (DIRTY if _git("status", "--porcelain", "--", *MEASURED) else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return found.stdout.strip()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every command that measures by itself: where results are kept, and what was noted before."""
    parser.add_argument("--json", type=Path, help="file in which results are kept")
    parser.add_argument("--busy", type=float, help=argparse.SUPPRESS)  # cores in use before, as `bench page` saw them


def stop_on_sigterm() -> None:
    """Have SIGTERM end the command as Ctrl-C does: brokers are stopped, directories are deleted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@dataclass
class Kept:
    """A section with what was measured, when and how."""

    table: str
    title: str
    rows: list[dict[str, Any]]
    note: str
    data: dict[str, Any]
    made: dict[str, str]
    """When, where and how it was measured, as `how` returns it."""

    def rounds(self, side: str, name: str | None = None) -> list[dict[str, float]]:
        """The figures of each round, of one of its loads if it has several."""
        found: list[dict[str, float]] = (self.data[name] if name else self.data)[side]["rounds"]
        return found


def how(rule: str, windows: str, busy_cores: float | None = None, missing: str = "") -> dict[str, str]:
    """When, where and how a section was measured: date, commit, machine, rule (of the warm-up), windows (rounds and
    their length), busy (cores that the machine used before the measurement, brokers at rest included) and missing
    (counters that this machine does not have)."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "machine": machine(),
        "rule": rule,
        "windows": windows,
        "busy": "" if busy_cores is None else f"{busy_cores:.2f}",
        "missing": missing,
    }


def rounds(count: int) -> str:
    return f"{count} round" + "s" * (count != 1)


@dataclass
class Results:
    sections: dict[str, Kept] = field(default_factory=dict)
    """Sections by key."""

    def add(self, table: str, section: Section, run: Run) -> None:
        rule = f"{run.rule}; a broker's first load takes {run.first_warm_up_s:g} s at least"
        made = how(rule, f"{rounds(run.rounds)} of {run.seconds:g} s", run.busy_cores, counters.missing())
        self.put(table, section, made)

    def put(self, table: str, section: Section, made: dict[str, str]) -> None:
        """Keep a section in place of the one with its key, if there is one."""
        key = section.key or section.title
        self.sections[key] = Kept(table, section.title, section.rows, section.note, section.data, made)

    def of(self, table: str) -> list[Kept]:
        return [kept for kept in self.sections.values() if kept.table == table]

    def write(self, path: Path) -> None:
        """Replace the file, at once: whoever stops the benchmark finds the old file or the new one."""
        text = json.dumps({key: asdict(kept) for key, kept in self.sections.items()}, indent=1)
        part = path.with_name(f"{path.name}.part{os.getpid()}")
        part.write_text(text + "\n")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Results:
        """The results in a file; none if there is no file yet."""
        if not path.exists():
            return cls()
        return cls({key: Kept(**value) for key, value in json.loads(path.read_text()).items()})


def markdown(section: Section | Kept) -> str:
    """The rows as a Markdown table, with the note below."""
    columns = list(dict.fromkeys(name for row in section.rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in columns) + " |" for row in section.rows]
    return "\n".join([*lines, *(["", section.note] if section.note else [])]) + "\n"
