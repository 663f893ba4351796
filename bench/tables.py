"""The tables that `python -m bench NAME` makes: a registry that every module of workloads adds its own to.

A module registers a function with `@table("name")`; it takes a `Run` and gives sections as they are measured:

    @table("flood", "what a bystander waits beside each attack")
    def flood(run: Run) -> Iterator[Section]:
        yield Section("Beside 20,000 pipelined requests", [{"side": "ottla", "p99 ms": 1.2}, ...])

and stands in `MODULES`, so that the command finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

MODULES: list[str] = []
"""Modules whose import registers tables, in the order in which a run of all makes them."""

Row = dict[str, Any]


@dataclass
class Section:
    """One printed table. The columns are those of the rows, in order of appearance."""

    title: str
    rows: list[Row]
    note: str = ""
    """What a reader must know beside the figures: a load that was the limit, a counter that is missing."""


@dataclass
class Run:
    """What one call of the command asks for."""

    sides: list[str]
    """Keys of `bench.brokers.SIDES`."""
    seconds: float
    """Of one measured window."""
    rounds: int
    """Measured windows of each side."""
    base: Path
    """Where brokers keep their data."""


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
