"""The codec beside kio's and beside Kafka's generated classes in a warm JVM: ten messages, decoded and encoded. And the
codecs by hand of Fetch and ShareFetch's answer beside the codec of all other messages.

    python -m bench.codec                      two tables: nanoseconds of CPU, and instructions
    python -m bench.codec Heartbeat Metadata   only messages with one of these words in their names
    python -m bench.codec --json FILE          and keep it with other results

The JVM decodes and encodes each message until its rate is steady, in all for 20 seconds at least. Its nanoseconds are
CPU time of the whole process, the garbage collector's too. User instructions are counted by `perf stat` where the
machine has counters; else Valgrind counts those of Python, and nobody the JVM's. Ottla encodes what a handler gives,
kio and Java encode messages that are built already.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol, TypeVar

from bench import results
from bench.codec_messages import HAND_WRITTEN, MESSAGES, ByHand, Measured
from bench.method import compare, counters
from bench.method.counted import totals
from bench.tables import Row, Run, Section, table
from peers.kafka import install, java
from tests.conformance.clients import build
from tests.conformance.line_program import Program

ACTIONS = ("decode", "encode")
PYTHON = ("ottla", "kio")
WINDOW_MS = 500
WARM_MS_MIN = 2_000
"""Warm-up of each action on each message: 40 seconds of a JVM for all ten."""
STEADY = 3
"""Windows in a row that differ by no more than SPREAD."""
SPREAD = 0.05
WINDOWS_MAX = 24
COUNTED_NS = 10_000_000
"""Work under Valgrind, in nanoseconds without it: half a second with it."""
TITLE = "Decoding and encoding a message: nanoseconds of CPU"
TITLE_BY_HAND = "Codecs by hand beside the codec by schema: nanoseconds of CPU"


Asked = TypeVar("Asked", contravariant=True)


class Side(Protocol[Asked]):
    """A process that decodes and encodes."""

    def time(self, action: str, message: Asked, millis: int) -> float:
        """Nanoseconds of CPU per operation."""

    def count(self, action: str, message: Asked, operations: int) -> float | None:
        """User instructions per operation; None where they cannot be counted."""

    def close(self) -> None: ...


class Java:
    """Kafka's generated classes (`CodecLines.java`)."""

    def __init__(self) -> None:
        install()
        command = java("CodecLines")
        command[command.index("-cp") + 1] += f":{build.build('tools')}"
        self.program = Program(command)

    def time(self, action: str, message: Measured, millis: int) -> float:
        return self._run(action, message, millis)[0]

    def _run(self, action: str, message: Measured, millis: int) -> tuple[float, float]:
        line = f"time {action} {message.java_class} {message.version} {message.body().hex()} {millis}"
        nanoseconds, operations = self.program.ask(line)[0].split()
        return float(nanoseconds), float(operations)

    def count(self, action: str, message: Measured, operations: int) -> float | None:
        if "instructions:u" not in counters.available():
            return None
        found: list[float] = []

        def work() -> None:
            found.append(self._run(action, message, WINDOW_MS)[1])

        return perf_count(self.program.process.pid, work) / found[0]

    def close(self) -> None:
        self.program.close()


class Python:
    """A side of `codec_work.py`, in one process that is timed and one in which Valgrind counts."""

    def __init__(self, side: str, directory: Path) -> None:
        self.side = side
        self.program = Program(python())
        self.counted = None
        if "instructions:u" not in counters.available() and shutil.which("valgrind"):
            self.out = directory / f"{side}.callgrind"
            self.counted = Program(
                ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={self.out}", *python()]
            )

    def time(self, action: str, message: Measured | ByHand, millis: int) -> float:
        return float(self.program.ask(f"time {self.side}|{action}|{message.name}|{millis}")[0].split()[0])

    def count(self, action: str, message: Measured | ByHand, operations: int) -> float | None:
        line = f"count {self.side}|{action}|{message.name}|"
        if self.counted is None:
            if "instructions:u" not in counters.available():
                return None
            return perf_count(self.program.process.pid, lambda: self.program.ask(f"{line}{operations}")) / operations
        self.counted.ask(f"{line}2")
        self._control("-i", "on")
        self._dump()
        self.counted.ask(f"{line}{operations}")
        found = self._dump()
        self._control("-i", "off")
        return found / operations

    def _dump(self) -> int:
        """Instructions since the last dump."""
        before = {*self.out.parent.glob(self.out.name + "*")}
        self._control("-d")
        (made,) = {*self.out.parent.glob(self.out.name + "*")} - before
        return totals(made)

    def _control(self, *arguments: str) -> None:
        assert self.counted is not None
        subprocess.run(
            ["callgrind_control", *arguments, str(self.counted.process.pid)], capture_output=True, check=True
        )

    def close(self) -> None:
        for program in (self.program, self.counted):
            if program is not None:
                program.close()


def python() -> list[str]:
    return [sys.executable, "-m", "bench.codec_work"]


def perf_count(pid: int, work: Callable[[], object]) -> float:
    """User instructions of a process, in all its threads, while `work` runs."""
    perf = counters.Perf([pid])
    perf.enable()
    work()
    perf.disable()
    return perf.finish()["instructions:u"]


def steady_ns(side: Side[Asked], action: str, message: Asked, window_ms: int, warm_ms: int) -> float:
    """The median of the first windows after the warm-up that agree; of the last ones if none ever do."""
    found: list[float] = []
    for number in range(max(WINDOWS_MAX, warm_ms // window_ms)):
        found.append(side.time(action, message, window_ms))
        last = found[-STEADY:]
        warm = (number + 1) * window_ms >= warm_ms and len(last) == STEADY
        if warm and max(last) - min(last) <= SPREAD * min(last):
            break
    return statistics.median(found[-STEADY:])


@table("codec", "decoding and encoding ten messages, beside kio and Java, and codecs by hand beside the one by schema")
def codec(run: Run) -> Iterator[Section]:
    yield beside_others(run)
    yield by_hand(run)


def beside_others(run: Run) -> Section:
    run.cool()
    wanted = [message for message in MESSAGES if run.wants(message.name)]
    quick = run.first_warm_up_s == 0
    window_ms, java_warm_ms = (100, 0) if quick else (WINDOW_MS, WARM_MS_MIN)
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        sides: dict[str, Side[Measured]] = {
            name: stack.enter_context(closing(Python(name, run.base))) for name in PYTHON
        }
        if "kafka" in run.sides:
            sides["java"] = stack.enter_context(closing(Java()))
        for message in wanted:
            for action in ACTIONS:
                of_it: dict[str, float] = {}
                found[f"{message.name}: {action}"] = of_it
                for name, side in sides.items():
                    if name == "kio" and message.key is None:
                        continue
                    nanoseconds = steady_ns(side, action, message, window_ms, java_warm_ms if name == "java" else 0)
                    of_it[f"{name} ns"] = nanoseconds
                    counted = side.count(action, message, max(2, round(COUNTED_NS / nanoseconds)))
                    if counted is not None:
                        of_it[f"{name} instructions"] = counted
    return Section(TITLE, rows(found), note(), "codec", dict(found))


def by_hand(run: Run) -> Section:
    """What a codec of its own saves a message."""
    window_ms = 100 if run.first_warm_up_s == 0 else WINDOW_MS
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        sides = {name: stack.enter_context(closing(Python(name, run.base))) for name in ("hand", "schema")}
        for message in HAND_WRITTEN:
            if not run.wants(message.name):
                continue
            of_it = found[f"{message.name}: {message.action}"] = {}
            for name, side in sides.items():
                of_it[f"{name} ns"] = nanoseconds = steady_ns(side, message.action, message, window_ms, 0)
                counted = side.count(message.action, message, max(2, round(COUNTED_NS / nanoseconds)))
                if counted is not None:
                    of_it[f"{name} instructions"] = counted
    return Section(TITLE_BY_HAND, rows_by_hand(found), note(), "codec by hand", dict(found))


def rows_by_hand(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """A row for each message: figures, and the part of each that the codec by hand saves."""
    out = []
    for name, of_it in found.items():
        row: Row = {"message": name}
        for unit in ("ns", "instructions"):
            if f"hand {unit}" in of_it:
                hand, schema = of_it[f"hand {unit}"], of_it[f"schema {unit}"]
                row |= {f"by hand, {unit}": f"{hand:,.0f}", f"by schema, {unit}": f"{schema:,.0f}"}
                row[f"saved, {unit}"] = f"{1 - hand / schema:.0%}"
        out.append(row)
    return out


def rows(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """A row for each action on each message: figures, and how many times as fast Ottla is as each other side."""
    out = []
    for name, of_it in found.items():
        row: Row = {"message": name}
        row |= {column: f"{each:,.0f}" for column, each in of_it.items() if column.endswith(" ns")}
        for other in ("kio", "java"):
            if f"{other} ns" in of_it:
                row[f"{other} / ottla"] = compare.times(of_it[f"{other} ns"] / of_it["ottla ns"])
        row |= {column: f"{each:,.0f}" for column, each in of_it.items() if column.endswith("instructions")}
        out.append(row)
    return out


def note() -> str:
    """What was not counted."""
    if "instructions:u" in counters.available():
        return "Instructions: of the process in user mode (perf stat)."
    if shutil.which("valgrind") is None:
        return counters.missing()
    return "Instructions: counted by Valgrind; nobody counts the JVM's, as perf has no such counter on this machine."


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.codec", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("messages", nargs="*", metavar="WORD", help="only messages with one of these in their names")
    parser.add_argument("--side", action="append", choices=["ottla", "kafka"], help="without kafka no JVM is started")
    parser.add_argument("--quick", action="store_true", help="almost no warm-up: to try it, not to measure")
    results.add_arguments(parser)
    arguments = parser.parse_args(command_line)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kept = results.Results.read(arguments.json) if arguments.json else results.Results()
    results.stop_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
        run = Run(arguments.side or ["ottla", "kafka"], WINDOW_MS / 1000, STEADY, Path(base), parts=arguments.messages)
        run.busy_cores = arguments.busy
        if arguments.quick:
            run.first_warm_up_s = 0.0
        for section in codec(run):
            print(f"### {section.title}\n\n{results.markdown(section)}")
            kept.add("codec", section, run)
    if arguments.json:
        kept.write(arguments.json)


if __name__ == "__main__":
    main()
