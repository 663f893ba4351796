"""Compare this tree with another commit: both nodes run, under the same load of this tree, in alternation.

    python -m bench compare BASE                      the first six tables below, about a quarter of an hour
    python -m bench compare BASE small produce fetch  some of them
    python -m bench compare BASE groups --load "fetch of 20 partitions"
    python -m bench compare BASE --with-kafka ...     Apache Kafka as a third side, and its warm-up
    python -m bench compare BASE --json FILE          keep the results, under keys that begin with "compare-"

BASE is a revision of git. Its source is taken out of git and built below .cache/bench, once. `base` is its node and
`ottla` this tree's; a ratio above one says that this tree has the higher figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from bench.method import brokers, compare
from bench.method.source_trees import SourceTree, source_tree
from bench.method.steady import Rule
from bench.tables import Run, Section, Table

TABLE = "compare"
"""The table of the results that the sections belong to."""
KEY = "compare-"
COMPARABLE = ("small", "produce", "fetch", "latency", "groups", "instructions", "durable", "connections")
"""Tables that can be compared; the page has a place for each. The first six if none is named."""
DEFAULT = COMPARABLE[:6]
RULE = Rule(seconds_max=12.0)
"""Both sides are this language, which has nothing to warm up but its caches."""


def add_arguments(parser: argparse.ArgumentParser, tables: Mapping[str, Table]) -> None:
    """Add the arguments of this command to those of every run."""
    names = "\n".join(f"  {name:<14}{tables[name].what}" for name in COMPARABLE)
    parser.epilog = f"tables ({', '.join(DEFAULT)}, if none is named):\n{names}"
    parser.add_argument("revision", metavar="BASE", help="a revision of git")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="tables to make")
    parser.add_argument("--with-kafka", action="store_true", help="measure Apache Kafka as well")


def prepare(run: Run, revision: str, with_kafka: bool, *, quick: bool = False) -> SourceTree:
    """Build the other commit and make it a side of the run. Raises as `source_tree` does."""
    tree = source_tree(revision)
    brokers.add_base(tree.source)
    run.sides = [compare.OURS, compare.BASE, *([compare.THEIRS] if with_kafka else [])]
    run.with_bare = False
    if not with_kafka and not quick:
        run.rule, run.first_warm_up_s = RULE, RULE.seconds_min
    return tree


def section_of(section: Section, tree: SourceTree) -> Section:
    """The section as it is kept: under a key of its own, with a word about what it was compared with."""
    note = " ".join(part for part in (f"Base: {tree}.", section.note) if part)
    return replace(section, key=KEY + (section.key or section.title), note=note)
