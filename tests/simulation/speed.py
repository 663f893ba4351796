"""How fast the simulation is: of each kind of runs, simulated seconds for one second of processor time.

    python -m tests.simulation.speed docs/testing.md          # writes the table there
    python -m tests.simulation.speed --seeds 1-5 --kind quorum

Processor time, since the number of seeds that are played decides what is found, and a busy machine changes it least.
Nodes do what they do one after the other, so a node's second is the fairer measure of clusters.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ottla.simulation import scenario

HEAD = "| kind | nodes | events a second | simulated s / CPU s | node s / CPU s |\n|---|---|---|---|---|\n"
TABLE = re.compile(r"(<!-- simulation speed -->\n).*?\n?(<!-- end -->)", re.DOTALL)


def row(kind: str, outcomes: Sequence[scenario.Outcome]) -> str:
    cpu_s = sum(each.cpu_s for each in outcomes)
    simulated_s = sum(each.simulated_s for each in outcomes)
    nodes = sorted(each.nodes for each in outcomes)
    node_s = sum(each.nodes * each.simulated_s for each in outcomes)
    many = f"{nodes[0]}" if nodes[0] == nodes[-1] else f"{nodes[0]} to {nodes[-1]}"
    events = sum(each.steps for each in outcomes) / simulated_s
    return f"| {kind} | {many} | {events:,.0f} | {simulated_s / cpu_s:.1f} | {node_s / cpu_s:.1f} |\n"


def measure(kinds: Iterable[str], seeds: Sequence[int]) -> str:
    """The table. Raises RuntimeError for a run that failed: what ended early is no measure."""
    scenario.run(0, "calm")  # imports
    rows = []
    for kind in kinds:
        outcomes = [scenario.run(seed, kind) for seed in seeds]
        if failed := [each.seed for each in outcomes if each.failures]:
            raise RuntimeError(f"{kind}: seeds {failed} failed")
        rows.append(row(kind, outcomes))
        print(rows[-1], end="", flush=True)
    day = datetime.datetime.now(tz=datetime.UTC).date()
    return f"{HEAD}{''.join(rows)}\nSeeds {seeds[0]} to {seeds[-1]} of each kind, {day}."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.speed", description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, help="write the table there")
    parser.add_argument("--seeds", default="1-3")
    parser.add_argument("--kind", choices=scenario.KINDS)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    table = measure([options.kind] if options.kind else scenario.KINDS, range(int(first), int(last or first) + 1))
    if options.page is None:
        print(HEAD.splitlines()[0], table.splitlines()[-1], sep="\n")
        return 0
    text = options.page.read_text(encoding="utf-8")
    if not TABLE.search(text):
        raise SystemExit(f"{options.page} has no place for it: {TABLE.pattern}")
    options.page.write_text(TABLE.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
