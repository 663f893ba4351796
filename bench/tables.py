"""The tables that `python -m bench NAME` makes: a registry that every module of workloads adds its own to.

A module registers a function with `@table("name")`; it takes a `Run` and gives sections as they are measured:

    @table("flood", "what a bystander waits beside each attack")
    def flood(run: Run) -> Iterator[Section]:
        yield Section("Beside 20,000 pipelined requests", [{"side": "ottla", "p99 ms": 1.2}, ...])

and stands in `MODULES`, so that the command finds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.method.brokers import WarmBrokers
from bench.method.page_cache import PageCache
from bench.method.steady import Rule

MODULES: list[str] = [
    "bench.workloads.throughput",
    "bench.workloads.latency",
    "bench.workloads.tails",
    "bench.workloads.clients",
    "bench.workloads.transactions",
    "bench.workloads.neighbours",
    "bench.throttled",
    "bench.workloads.group_requests",
    "bench.workloads.rebalances",
    "bench.workloads.consumer_rebalances",
    "bench.workloads.share_groups",
    "bench.workloads.group_clients",
    "bench.workloads.cold_starts",
    "bench.workloads.restarts",
    "bench.instructions",
    "bench.codec",
    "bench.attacks",
    "bench.workloads.failovers",
    "bench.method.clusters",
    "bench.workloads.growth",
    "bench.workloads.controller",
    "bench.workloads.controller_failovers",
]
"""Modules whose import registers tables, in the order in which a run of all makes them."""

Row = dict[str, Any]


@dataclass
class Section:
    """One printed table. The columns are those of the rows, in order of appearance."""

    title: str
    rows: list[Row]
    note: str = ""
    """Facts that a reader needs beside the figures: a load that was the limit, a counter that is missing."""
    key: str = ""
    """Name of the section in the results; the title if this is empty."""
    data: dict[str, Any] = field(default_factory=dict)
    """Data that the rows were made of, kept with the results: figures of every round, windows of the warm-up."""


@dataclass
class Run:
    """Everything that one call of the command asks for."""

    sides: list[str]
    """Keys of `bench.method.brokers.SIDES`."""
    seconds: float
    """Length of one measured window."""
    rounds: int
    """Measured windows of each side."""
    base: Path
    """Directory in which brokers keep their data."""
    rule: Rule = field(default_factory=Rule)
    """Rule that says when a side is warm."""
    first_warm_up_s: float = 25.0
    """The least time that a broker is under load before its first measurement, whatever its rate does."""
    with_bare: bool = True
    """Whether the bare loop is measured beside the brokers."""
    parts: Sequence[str] = ()
    """Parts of the names of loads: a table of several loads makes only those with one of these parts in their names,
    all if this is empty."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Settings that all warm brokers have too: tables with the same settings in all share brokers that are warm."""
    busy_cores: float | None = None
    """Cores that the machine used before the measurement, while the brokers were at rest; None if nobody looked."""
    page_cache: PageCache | None = None
    """Filled before each measurement; None for a quick run."""
    _warm: WarmBrokers | None = None

    def wants(self, load: str) -> bool:
        return not self.parts or any(part in load for part in self.parts)

    def warm(self, settings: Mapping[str, str] | None = None) -> WarmBrokers:
        """All sides, running, as the tables before left them; other settings restart them."""
        wanted = {**(settings or {}), **self.more}
        if self._warm is None or self._warm.settings != wanted:
            self.cool()
            self._warm = WarmBrokers(self.sides, self.base, wanted)
        return self._warm

    def settle(self) -> None:
        """Write what the side before has written to the disk, and leave no free memory: no side pays for another."""
        os.sync()
        if self.page_cache is not None:
            self.page_cache.fill()

    def cool(self) -> None:
        """Stop the brokers that are warm, for a table that starts its own."""
        if self._warm is not None:
            self._warm.stop()
            self._warm = None


@dataclass
class Table:
    name: str
    what: str
    make: Callable[[Run], Iterator[Section]]


_tables: dict[str, Table] = {}


def table(name: str, what: str) -> Callable[[Callable[[Run], Iterator[Section]]], Callable[[Run], Iterator[Section]]]:
    """Register a function as the table `name`. Raises ValueError for a name that is taken."""

    def register(make: Callable[[Run], Iterator[Section]]) -> Callable[[Run], Iterator[Section]]:
        if name in _tables:
            raise ValueError(f"two tables are called {name!r}")
        _tables[name] = Table(name, what, make)
        return make

    return register


def all_tables() -> dict[str, Table]:
    """Every table by name, in the order in which they are made."""
    for module in MODULES:
        import_module(module)
    return dict(_tables)
