"""`ottla sim`: nodes and clusters, the real code, on simulated machines; any failure can be played again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter

from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import Flag
from ottla.cli.output import visible
from ottla.cli.values import Count, Minutes, ProcessCount, Text

Kind = Literal[
    "power", "network", "kill", "disk", "mixed", "calm", "cluster", "quorum", "long", "transactions", "groups",
    "queues", "streams", "applications", "security", "in zookeeper",
]  # fmt: skip


def sim(
    *,
    seed: Annotated[Count, Parameter(help="Run this seed and print its history.")] = 0,
    seeds: Annotated[Text, Parameter(help="Run a range of seeds, FIRST-LAST, and print those that fail.")] = "",
    kind: Annotated[Kind | None, Parameter(help="The kind of run. Default: chosen by the seed.")] = None,
    minutes: Annotated[Minutes, Parameter(help="Run seeds from --seed on for this many minutes.")] = 0,
    jobs: Annotated[ProcessCount, Parameter(help="Number of processes; 0 means one per core.")] = 0,
    all_lines: Annotated[Flag, Parameter(name="--all", help="Print network and disk bytes too.")] = False,
    digest: Annotated[Flag, Parameter(help="Print only the digest of the history.")] = False,
) -> int:
    """Run nodes and clients on simulated machines with faults, all derived from a seed.

    The same seed gives the same history, byte for byte. Exit code 1 if a guarantee was violated.
    """
    if seeds or minutes:
        return _many(_range(seeds) if seeds else _for_minutes(seed, minutes), kind, jobs or os.cpu_count() or 1)
    from ottla.simulation import reports, scenario

    outcome = scenario.run(seed, kind)
    if digest:
        print(outcome.digest)
        return OK
    for line in outcome.lines:
        if all_lines or not reports.is_detail(line):
            print(visible(line))
    print(reports.summary(outcome))
    return FAILED if outcome.failures and not outcome.met_little else OK


def _range(text: str) -> range:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)):
        raise CommandFailed(f"--seeds must be FIRST-LAST, not {visible(text)}", MISUSED)
    return range(int(first), int(last or first) + 1)


def _for_minutes(first: int, minutes: float) -> Iterator[int]:
    until_s = time.monotonic() + 60 * minutes
    while time.monotonic() < until_s:
        yield first
        first += 1


def _many(seeds: range | Iterator[int], kind: str | None, jobs: int) -> int:
    from ottla.simulation import reports

    tally = reports.Tally()
    for outcome in reports.play_many(seeds, kind, jobs):
        tally.add(outcome)
        if outcome.failures and not outcome.met_little:
            print(reports.summary(outcome), flush=True)
    print(tally)
    return FAILED if tally.failed else OK
