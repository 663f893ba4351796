"""User instructions per request of Ottla, counted by Valgrind: the same on any machine, loaded or not, to a percent.
Of a rebalance they are counted per member.

    python -m bench instructions               the table
    python -m bench.instructions --write       and keep it in bench/instructions.json, which a test compares with

For a change of the hot path: before and after. Where `perf stat` has hardware counters the tables of rates count both
sides; Valgrind needs none, but cannot run a JVM at a speed at which it would ever be warm. The kernel's instructions
are not counted (the tables of rates have the system calls). Valgrind knows neither reads that do not wait nor
cachestat: there the node takes its way for file systems that know them neither, which costs about the same.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bench.method import compare
from bench.method.brokers import SOURCES
from bench.method.counted import WARM_BURSTS, CountedOttla, count
from bench.method.counted_requests import Load, loads, prepared
from bench.tables import Row, Run, Section, table
from bench.workloads.group_requests import SETTINGS
from ottla.protocol.records import _records

KEPT = Path(__file__).with_name("instructions.json")
BURSTS = 40
"""Bursts that are counted; a tenth of it for requests with much data, but eight at least."""
AT_ONCE = {
    "group.consumer.assignment.interval.ms": "0", "group.share.record.lock.duration.ms": "3600000",
    "group.share.max.record.lock.duration.ms": "3600000", "group.initial.rebalance.delay.ms": "500",
    "log.retention.check.interval.ms": "3600000",
}  # fmt: skip
"""Assignments follow one another without a second between them, and no lock of a share group ends meanwhile: under
Valgrind a held record would be delivered again after half a minute. All members of a new group join in its first
rebalance. No log is looked through for old segments: on a busy machine that came several times in a burst, and a
rebalance of 100 members took a tenth more."""
TITLE = "User instructions per request, Ottla"
NOTE = "Counted by Valgrind's callgrind; instructions in the kernel are not in it."


def build() -> str:
    """Version of Python and whether modules are compiled: only figures of the same build can be compared.

    Debian's 3.11.2, which is optimized by profile, takes a sixth fewer than a 3.11.7 made without.
    """
    compiled = not str(_records.__file__).endswith(".py")
    version = platform.python_version()
    return f"{sys.implementation.name} {version}, {'compiled' if compiled else 'interpreted'} modules"


def measure(
    base: Path, wanted: Iterable[Load], *, warm: int = WARM_BURSTS, bursts: int = BURSTS, source: Path | None = None
) -> dict[str, float]:
    """User instructions per request, by the name of the load. `base` is an empty directory.

    Of this tree's node, or of the one whose package lies below `source`.
    """
    found = {}
    wanted = list(wanted)
    for with_follower in (False, True):
        some = [load for load in wanted if load.with_follower == with_follower]
        if not some:
            continue
        node = CountedOttla(base / f"data-{with_follower}", {**SETTINGS, **AT_ONCE}, source)
        if with_follower:
            node.listen_for_controllers()
        try:
            node.start()
            with prepared(node) as broker:
                for load in some:
                    share = 10 if load.is_large else 1
                    requests = load.requests(broker)
                    found[load.name] = count(node, requests, max(3, warm // share), max(8, bursts // share))
        finally:
            node.stop_and_delete()
    return found


@table("instructions", "user instructions per request of Ottla, under Valgrind")
def instructions(run: Run) -> Iterator[Section]:
    if shutil.which("valgrind") is None:
        yield Section(TITLE, [], "Not counted: Valgrind is not installed.", "instructions")
        return
    run.cool()
    wanted = [load for load in loads() if run.wants(load.name) and not load.by_name]
    found = {}
    for side in [side for side in run.sides if side in SOURCES]:
        directory = run.base / f"counted-{side}"
        directory.mkdir()
        found[side] = measure(directory, wanted, source=SOURCES[side])
    if compare.BASE in found:
        yield Section(TITLE, beside_base(found), NOTE, "instructions", dict(found))
    elif ours := found.get(compare.OURS):
        rows = [{"request": name, "user instructions": f"{each:,.0f}"} for name, each in ours.items()]
        yield Section(TITLE, rows, NOTE, "instructions", dict(ours))


def beside_base(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """A row for each request with the counts of both commits, by side and request."""
    return [
        {
            "request": name,
            **{side: f"{found[side][name]:,.0f}" for side in (compare.BASE, compare.OURS)},
            compare.BASE_RATIO: compare.times(each / found[compare.BASE][name]),
        }
        for name, each in found[compare.OURS].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", metavar="PART OF A NAME", help="count these only")
    parser.add_argument("--write", action="store_true", help=f"keep what was counted in {KEPT.name}")
    arguments = parser.parse_args()
    parts: list[str] = arguments.loads
    wanted = [
        load
        for load in loads()
        if load.name in parts or (not load.by_name and (not parts or any(part in load.name for part in parts)))
    ]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
        found = measure(Path(base), wanted)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name, each in found.items():
        before = kept.get("loads", {}).get(name)
        print(f"{each:12,.0f}  {name}" + (f"  ({each / before - 1:+.1%})" if before else ""))
    if arguments.write:
        known = {load.name for load in loads() if load.is_kept}
        counts = {name: each for name, each in {**kept.get("loads", {}), **found}.items() if name in known}
        text = json.dumps({"build": build(), "loads": {name: round(each) for name, each in counts.items()}}, indent=1)
        KEPT.write_text(text + "\n")


if __name__ == "__main__":
    main()
