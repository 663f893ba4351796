"""Measure every table of docs/performance.md at one commit, in about 40 minutes: `python -m bench page`.

    python -m bench page                    all steps, the most important ones first (`make bench`)
    python -m bench page --list             the steps, how long each takes, and which are done
    python -m bench page --minutes 20       begin no step that would take longer than that
    python -m bench page start small spark  only these steps

Results go to docs/performance.json after each table. Stop the command whenever you like (Ctrl-C): called again, it
continues with the steps that are not done at this commit. A JVM has at least 25 seconds of load before it is measured.
Needs a machine without other work: what the machine used before each step is kept with the figures, and printed.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench import results
from bench.method import counters
from bench.method.steady import Rule
from bench.results import DIRTY, ROOT, Results
from bench.tables import Run, Table
from bench.workloads.group_requests import SETTINGS

RESULTS = ROOT / "docs" / "performance.json"
RULE = Rule(windows=3, window_s=1.2, spread_max=0.08, seconds_min=3.6, requests_min=500, seconds_max=12.0)
"""When a load is warm on brokers that had `Run.first_warm_up_s` of load before."""
WINDOW_S = 2.0
ROUNDS = 3
PATIENCE = 4.0
"""A step that takes so many times as long as it should is given up."""
BUSY_CORES_MAX = 0.3
"""Used before a step, with the brokers at rest: above, other work disturbs what is measured."""


@dataclass(frozen=True)
class Step:
    """Something that makes sections of the results."""

    name: str
    minutes: float
    """How long it takes on two cores."""
    keys: tuple[str, ...]
    """Keys of the sections that it makes."""
    table: str = ""
    """A table of `bench.tables`; `name` if this is empty and there is no command."""
    parts: tuple[str, ...] = ()
    """The loads of the table, as `--load` takes them; all if this is empty."""
    rounds: int = ROUNDS
    """Measured windows of each side, or repetitions."""
    command: tuple[str, ...] = ()
    """A module of its own with its arguments, instead of a table. It is given `--json` too."""
    tiny: tuple[str, ...] = ()
    """Arguments that come last for `--quick`."""
    with_bare: bool = False
    """Whether the bare loop is measured beside the brokers."""
    is_extra: bool = False
    """Whether it is made only if it is named, or with `--extra`: docs/performance.md does not need it."""

    def is_done(self, kept: Results, commit: str) -> bool:
        return all(key in kept.sections and kept.sections[key].made["commit"] == commit for key in self.keys)


TRANSACTIONS = ("produce", "latency", "commits-1", "commits-10")
SHARE_GROUPS = ("deliveries", "jobs", "redelivery")
GROUP_REQUESTS = (
    "commit of 1 partition, 1 group", "commit of 20 partitions, 50", "offset fetch of 20 partitions", "heartbeat",
)  # fmt: skip
GROUP_SIZES = (*(f"groups of {size} members" for size in ("10", "100", "1,000", "5,000")), "groups of 3")
CLUSTER = ("record a request, three", "16 KB batches, three", "empty replica", "Start of three")
SPARK = ("source-100", "source-1000", "sink-100", "sink-1000", "stream-100")
PIPELINES = ("activity", "ledger")
ATTACKS = ("20,000 Metadata", "do not read", "Fetch of 190,000")
CONTROLLER = tuple(
    f"The controller: {each}"
    for each in ("a broker is fenced", "and comes back", "a leader changes its ISR", "a new controller's first (index)",
                 "memory")
)  # fmt: skip

STEPS = (
    Step("start", 1.4, ("start", "first-seconds")),
    Step("small", 1.4, ("produce-one-record",)),
    Step("produce", 3.0, ("produce-16k", "produce-64k", "produce-1m"), with_bare=True),
    Step("fetch", 1.5, ("fetch-64k", "fetch-1m"), with_bare=True),
    Step("latency", 0.5, ("round-trip",)),
    Step("tails", 2.0, (*(f"tail-{size}" for size in (1, 20, 2000)), "tail-crowd")),
    Step("durable", 0.5, ("produce-fsync",)),
    Step("connections", 0.7, ("produce-1000-connections",)),
    Step("transactions", 2.0, tuple(f"transactions-{each}" for each in TRANSACTIONS)),
    Step("groups", 1.5, ("group-requests",), parts=GROUP_REQUESTS),
    Step("rebalances", 1.5, ("rebalances",), parts=GROUP_SIZES),
    Step("consumer-rebalances", 2.5, ("consumer-rebalances",), parts=GROUP_SIZES),
    Step("cluster", 3.5, ("replicated-one-record", "replicated-16k", "catch-up", "cluster-start"), parts=CLUSTER),
    Step("failover", 2.5, ("killed-nodes",), rounds=1, parts=("kill -9 of a leader", "restart")),
    Step("spark", 5.0, tuple(f"spark-{each}" for each in SPARK), command=("bench.spark", "--page"),
         tiny=("--rows", "4000", "--rounds", "1", "--warm-up", "0")),
    Step("mirror", 2.0, ("mirror",), command=("bench.mirror", "--page"),
         tiny=("--megabytes", "2", "--warm-up", "1", "--warm-up-seconds", "0", "--seconds", "2")),
    Step("pipelines", 3.0, tuple(f"pipeline-{each}" for each in PIPELINES), command=("bench.pipelines", "--page"),
         tiny=("--events", "2000", "--rounds", "1", "--warm-up", "0")),
    Step("share-groups", 2.4, tuple(f"share-groups-{each}" for each in SHARE_GROUPS)),
    Step("embed", 0.5, ("embed",)),
    Step("throttled", 4.0, ("throttled",), rounds=3, parts=("nobody", "a writer", "a reader")),
    Step("flood", 2.7, ("flood",), parts=ATTACKS),
    Step("controller-failover", 9.0, ("controller-failover",), is_extra=True),
    Step("controller", 1.0, CONTROLLER, is_extra=True),
    Step("growth", 3.5, ("growth",), is_extra=True),
    Step("cluster-transactions", 3.5, tuple(f"three-nodes-transactions-{each}" for each in TRANSACTIONS),
         is_extra=True),
    Step("cluster-share-groups", 3.0, tuple(f"three-nodes-share-groups-{each}" for each in SHARE_GROUPS),
         is_extra=True),
    Step("cluster-consumer-rebalances", 4.0, ("cluster-consumer-rebalances",), is_extra=True),
)  # fmt: skip
"""The most important first. Steps beside each other share brokers that are warm."""
PAGE = tuple(step for step in STEPS if not step.is_extra)


def steps_of(names: Sequence[str], *, extra: bool = False) -> list[Step]:
    """The named steps in the order of the plan; if none is named all of the page, or all with those that are extra."""
    return [step for step in STEPS if (step.name in names if names else extra or not step.is_extra)]


class Runner:
    """Makes the steps that are not done, and keeps what they found."""

    def __init__(
        self,
        run: Run,
        tables: Mapping[str, Table],
        path: Path,
        *,
        quick: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self.tables, self.path, self.quick, self._clock = run, tables, path, quick, clock
        self.commit = results.commit()
        self.failed: list[str] = []

    def left(self, steps: Sequence[Step]) -> list[Step]:
        """Steps that are not done at this commit."""
        kept = Results.read(self.path)
        return [step for step in steps if not step.is_done(kept, self.commit)]

    def all(self, left: Sequence[Step], minutes: float) -> None:
        """Make these steps one after the other, but none that would end later than in so many minutes."""
        begin = self._clock()
        for number, step in enumerate(left, 1):
            gone = (self._clock() - begin) / 60
            if gone + step.minutes > minutes:
                print(f"({step.name}: {step.minutes:g} of the {minutes:g} minutes are not left)", flush=True)
                continue
            self.run.busy_cores = counters.busy_cores()
            busy = f"{self.run.busy_cores:.2f} cores busy before it"
            if self.run.busy_cores > BUSY_CORES_MAX:
                busy += ": THE MACHINE IS NOT QUIET"
            done = f"{number}/{len(left)}, {gone:.0f} min gone"
            print(f"\n[{done}] {step.name}: {step.minutes:g} min; {busy}", flush=True)
            started = self._clock()
            try:
                with given_up_after(step.minutes * 60 * PATIENCE):
                    self.make(step)
            except Exception:  # the next steps are made all the same
                traceback.print_exc()
                self.failed.append(step.name)
                self.run.cool()
            print(f"({step.name}: {(self._clock() - started) / 60:.1f} min)", flush=True)

    def make(self, step: Step) -> None:
        if step.command:
            self.run.cool()
            self.run.settle()
            module, *arguments = step.command
            more = step.tiny if self.quick else ()
            command = [sys.executable, "-m", module, *arguments, "--json", str(self.path), *more]
            busy = ["--busy", f"{self.run.busy_cores:.2f}"]
            _finish(subprocess.Popen([*command, *busy], stdin=subprocess.DEVNULL))
            return
        name = step.table or step.name
        run = self.run
        run.parts, rounds = step.parts, run.rounds
        run.with_bare = step.with_bare
        run.rounds = min(step.rounds, rounds)
        try:
            for section in self.tables[name].make(run):
                print(f"\n### {section.title}\n\n{results.markdown(section)}", flush=True)
                kept = Results.read(self.path)
                kept.add(name, section, run)
                kept.write(self.path)
        finally:
            run.parts, run.rounds = (), rounds


def _finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for a command; whatever ends the wait ends the command, which stops its brokers first. Raises
    RuntimeError where it fails."""
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    if code:
        raise RuntimeError(f"{process.args!r} ended with {code}")


class GivenUp(Exception):
    """A step takes much longer than it should. No OSError: loops that wait for a broker pass over those."""


@contextmanager
def given_up_after(seconds: float) -> Iterator[None]:
    """Raises GivenUp in what runs within, after so long."""

    def give_up(_number: int, _frame: FrameType | None) -> NoReturn:
        raise GivenUp(f"given up after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, should a callback swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = "\n".join(f"  {step.name:<30}{step.minutes:g} min{' (extra)' * step.is_extra}" for step in STEPS)
    parser.epilog = (
        f"steps ({sum(step.minutes for step in PAGE):.0f} min; those with (extra) by --extra or by name):\n{names}"
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="only these steps")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no step that would end later")
    parser.add_argument("--list", action="store_true", help="print the steps, and which are done, and measure nothing")
    parser.add_argument("--extra", action="store_true", help="also the steps that docs/performance.md does not need")
    parser.add_argument("--again", action="store_true", help="also steps that are done at this commit")
    parser.add_argument("--quick", action="store_true", help="no warm-up, tiny loads: to try the command")
    parser.add_argument("--directory", type=Path, help="directory of the brokers' data (the temporary directory)")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where results are kept (docs/performance.json)")


def refusal(arguments: argparse.Namespace, commit: str) -> str:
    """Why nothing may be measured; empty if it may."""
    if arguments.quick and arguments.json.resolve() == RESULTS:
        return "--quick measures nothing that a page may show: name another file with --json"
    if commit.endswith(DIRTY) and not arguments.quick:
        return f"commit your changes of {', '.join(results.MEASURED)} first: each table says which commit it measured"
    return ""


def settings_of(run: Run, quick: bool) -> Run:
    """The run that a page is measured with."""
    run = replace(run, with_bare=False, more=SETTINGS)
    return run if quick else replace(run, rule=RULE, seconds=WINDOW_S, rounds=ROUNDS)


def describe(steps: Sequence[Step], left: Sequence[Step], path: Path, commit: str) -> str:
    """The plan, as it is printed before it begins."""
    lines = [
        f"Commit {commit}; results go to {path}.",
        f"{len(steps) - len(left)} of {len(steps)} steps are done at this commit; the others take about "
        f"{sum(step.minutes for step in left):.0f} minutes:",
    ]
    lines += [f"  {'     ' if step in left else 'done '}{step.name:<30}{step.minutes:g} min" for step in steps]
    return "\n".join(lines)


def ending(left: Sequence[Step], failed: Sequence[str]) -> str:
    """What is printed at the end."""
    if not left:
        return "All of these steps are done at this commit. Now run: python -m bench.render"
    names, minutes = ", ".join(step.name for step in left), sum(step.minutes for step in left)
    text = f"Not done: {names} (about {minutes:.0f} min). Run the command again to continue."
    return text + (f" Failed: {', '.join(failed)}." if failed else "")


def make_page(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser, run: Run, tables: Mapping[str, Table]
) -> None:
    """What `python -m bench page` does. Raises SystemExit where something is left."""
    if not arguments.list and (why := refusal(arguments, results.commit())):
        parser.error(why)
    steps = steps_of(arguments.steps, extra=arguments.extra)
    runner = Runner(settings_of(run, arguments.quick), tables, arguments.json, quick=arguments.quick)
    todo = steps if arguments.again else runner.left(steps)
    print(describe(steps, todo, arguments.json, runner.commit), flush=True)
    if arguments.list:
        return
    try:
        runner.all(todo, arguments.minutes)
    finally:
        runner.run.cool()
        left = runner.left(steps)
        print(f"\n{ending(left, runner.failed)}", flush=True)
    if left:
        sys.exit(1)
