"""What a run of the benchmarks found, kept as JSON: the tables, the figures they were made of, when, where, from what.

`docs/performance.json` is the file from which the documentation's tables are rendered.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from bench import counters
from bench.tables import Run, Section

ROOT = Path(__file__).resolve().parents[1]


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GB of memory, "
        f"Linux {platform.release()}, Python {platform.python_version()}"
    )


@cache
def commit() -> str:
    """The commit that is measured, with a mark if the code differs from it; empty outside a repository."""
    name = _git("rev-parse", "--short=12", "HEAD")
    return name + ("-dirty" if _git("status", "--porcelain", "--", "src", "bench", "peers") else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )  # fmt: skip
    return found.stdout.strip()


@dataclass
class Kept:
    """A section with what was measured, when and how."""

    table: str
    title: str
    rows: list[dict[str, Any]]
    note: str
    data: dict[str, Any]
    made: dict[str, str]
    """date, commit, machine, rule (of the warm-up), windows, missing (counters)."""

    def rounds(self, side: str, name: str | None = None) -> list[dict[str, float]]:
        """The figures of each round, of one of its loads if it has several."""
        found: list[dict[str, float]] = (self.data[name] if name else self.data)[side]["rounds"]
        return found


@dataclass
class Results:
    sections: dict[str, Kept] = field(default_factory=dict)
    """By key."""

    def add(self, table: str, section: Section, run: Run) -> None:
        made = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit(),
            "machine": machine(),
            "rule": f"{run.rule}; a broker's first load takes {run.first_warm_up_s:g} s at least",
            "windows": f"{run.rounds} rounds of {run.seconds:g} s",
            "missing": counters.missing(),
        }
        key = section.key or section.title
        self.sections[key] = Kept(table, section.title, section.rows, section.note, section.data, made)

    def of(self, table: str) -> list[Kept]:
        return [kept for kept in self.sections.values() if kept.table == table]

    def write(self, path: Path) -> None:
        text = json.dumps({key: asdict(kept) for key, kept in self.sections.items()}, indent=1)
        path.write_text(text + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        """Of a file, or nothing if there is none yet."""
        if not path.exists():
            return cls()
        return cls({key: Kept(**value) for key, value in json.loads(path.read_text()).items()})


def markdown(section: Section | Kept) -> str:
    """The rows as a Markdown table, with the note below."""
    columns = list(dict.fromkeys(name for row in section.rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in columns) + " |" for row in section.rows]
    return "\n".join([*lines, *(["", section.note] if section.note else [])]) + "\n"
