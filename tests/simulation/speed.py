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
DAY_S = 24 * 3600
TABLE = re.compile(r"(<!-- simulation speed -->\n).*?\n?(<!-- end -->)", re.DOTALL)


def row(kind: str, outcomes: Sequence[scenario.Outcome]) -> str:
    cpu_s = sum(each.cpu_s for each in outcomes)
    simulated_s = sum(each.simulated_s for each in outcomes)
    nodes = sorted(each.nodes for each in outcomes)
    node_s = sum(each.nodes * each.simulated_s for each in outcomes)
    many = f"{nodes[0]}" if nodes[0] == nodes[-1] else f"{nodes[0]} to {nodes[-1]}"
    events = sum(each.steps for each in outcomes) / simulated_s
    return f"| {kind} | {many} | {events:,.0f} | {simulated_s / cpu_s:.1f} | {node_s / cpu_s:.1f} |\n"


def a_day(outcomes: Iterable[Sequence[scenario.Outcome]]) -> str:
    """What 24 hours on two cores play, if each kind gets as much processor time as any other."""
    node_s, events = [], []
    for of_kind in outcomes:
        cpu_s = sum(each.cpu_s for each in of_kind)
        node_s.append(sum(each.nodes * each.simulated_s for each in of_kind) / cpu_s)
        events.append(sum(each.steps for each in of_kind) / cpu_s)
    mean_s, mean_events = sum(node_s) / len(node_s), sum(events) / len(events)
    return (
        f"With as much processor time for each kind, it is {mean_s:.0f} s of a node in a second of one core, "
        f"and {mean_events:,.0f} events. Then 24 hours on two cores play {2 * mean_s:,.0f} days of a node: "
        f"{2 * DAY_S * mean_events / 1e9:.1f} billion events."
    )


def measure(kinds: Iterable[str], seeds: Sequence[int]) -> str:
    """The table. Raises RuntimeError for a run that failed: what ended early is no measure."""
    scenario.run(0, "calm")  # imports
    rows, all_outcomes = [], []
    for kind in kinds:
        outcomes = [scenario.run(seed, kind) for seed in seeds]
        if failed := [each.seed for each in outcomes if each.failures]:
            raise RuntimeError(f"{kind}: seeds {failed} failed")
        rows.append(row(kind, outcomes))
        all_outcomes.append(outcomes)
        print(rows[-1], end="", flush=True)
    day = datetime.datetime.now(tz=datetime.UTC).date()
    return f"{HEAD}{''.join(rows)}\nSeeds {seeds[0]} to {seeds[-1]} of each kind, {day}. {a_day(all_outcomes)}"


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
