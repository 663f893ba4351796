"""Transactions, who saw them, and what is wrong with them: a history in, findings out, no broker in sight.

Partitions are lists that transactions append to. Each value names its transaction and its place in it, so that the log
in the end is the order of versions, and whoever read a value read from a transaction (as in Elle's list-append).
Transactions read first and write then, and Kafka promises no order of writes over several partitions (G0): what must
not be is a cycle in which information goes round: one with reads, and without two orders of writes in succession.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ottla.histories import findings as of_any_kind
from ottla.histories.findings import Partition, in_order


class Kind(Enum):
    """Kinds of findings; the value is the text."""

    LOST = "of a committed transaction, but not in the log"
    ABORTED = "of an aborted transaction, but read as committed (G1a)"
    INTERMEDIATE = "read before its commit was requested, or without the rest of its transaction (G1b)"
    DUPLICATED = "more than once in the log"
    REORDERED = "in the log before a record that its transaction had written earlier"
    PHANTOM = "read, but never written there, or gone afterwards"
    CYCLE = "transactions that read from each other in a cycle (G1c)"
    REPEATED = "consumed by two committed transactions of a group"
    PASSED_OVER = "skipped by the committed transactions of a group"
    UNSTABLE = "a partition whose last stable offset does not advance, or that cannot be read"
    WRITE_CYCLE = "transactions whose writes are in different orders in different partitions (G0)"

    @property
    def is_allowed(self) -> bool:
        """Whether Kafka promises nothing else."""
        return self is Kind.WRITE_CYCLE


class Value(NamedTuple):
    """One value where it was found. `transaction` is -1 for one that is not of the run."""

    partition: Partition
    offset: int
    transaction: int
    place: int
    """Among the values of its transaction."""


@dataclass(slots=True)
class Transaction:
    number: int
    who: str
    appends: list[Partition] = field(default_factory=list)
    """The partition of each value, by its index."""
    reads: list[Value] = field(default_factory=list)
    """Values it consumed, all before it wrote."""
    asked: bool = False
    """A commit was requested."""
    committed: bool | None = None
    """The outcome known to its producer."""
    late: dict[int, None] = field(default_factory=dict)
    """Indexes of values that were sent when the transaction was over, or about to be aborted."""

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.who}"


class Seen(NamedTuple):
    """A value that a read_committed reader got."""

    reader: str
    value: Value
    asked: bool
    """Whether somebody had asked to commit its transaction by then."""


@dataclass
class History:
    transactions: dict[int, Transaction] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    log: dict[Partition, list[Value]] = field(default_factory=dict)
    """Committed values at the end, by partition, in the order of offsets."""
    unstable: dict[Partition, str] = field(default_factory=dict)
    """Partitions that could not be read to their end, and why."""
    starts: dict[Partition, int] = field(default_factory=dict)
    """Where each partition was read from at the end, where retention has taken what came before; else 0."""


Finding = of_any_kind.Finding[Kind]


def findings(history: History) -> list[Finding]:
    """Everything that is wrong, in the order of `Kind`."""
    found = [*_of_the_log(history), *_of_readers(history), *_of_groups(history), *_of_cycles(history)]
    return in_order(Kind, found)


def _of_the_log(history: History) -> Iterator[Finding]:
    for partition, why in sorted(history.unstable.items()):
        yield Finding(Kind.UNSTABLE, partition, why)
    places: dict[tuple[int, int], list[Value]] = defaultdict(list)
    for values in history.log.values():
        for value in values:
            if value.transaction >= 0:
                places[value.transaction, value.place].append(value)
                yield from _written(history, value)
    for transaction in history.transactions.values():
        yield from _whole(history, transaction, places)


def _written(history: History, value: Value) -> Iterator[Finding]:
    """Whether a value may be where it is."""
    transaction = history.transactions.get(value.transaction)
    if transaction is None or transaction.appends[value.place : value.place + 1] != [value.partition]:
        yield Finding(Kind.PHANTOM, value.partition, f"{_name(value)} was never written there")
    elif transaction.committed is False or value.place in transaction.late:
        yield Finding(Kind.ABORTED, value.partition, f"{_name(value)} of {transaction.who} is in the log")
    elif not transaction.asked:
        yield Finding(Kind.INTERMEDIATE, value.partition, f"{_name(value)} of {transaction.who} is in the log")


def _whole(
    history: History, transaction: Transaction, places: Mapping[tuple[int, int], Sequence[Value]]
) -> Iterator[Finding]:
    """Whether a transaction is there once, in its order, all of it or nothing."""
    last: dict[Partition, int] = {}
    there, missing = 0, []
    for index, partition in enumerate(transaction.appends):
        if index in transaction.late:
            continue
        found = [each for each in places.get((transaction.number, index), ()) if each.partition == partition]
        if len(found) > 1:
            where = ", ".join(str(each.offset) for each in found)
            yield Finding(Kind.DUPLICATED, partition, f"{transaction}, value {index} at offsets {where}")
        if found:
            there += 1
            if found[0].offset < last.get(partition, -1):
                text = f"{transaction}, value {index} at offset {found[0].offset}, one before it at {last[partition]}"
                yield Finding(Kind.REORDERED, partition, text)
            last[partition] = found[0].offset
        elif partition in history.log and not history.starts.get(partition):
            missing.append((index, partition))
    for index, partition in missing:
        if transaction.committed:
            yield Finding(Kind.LOST, partition, f"{transaction}, value {index}, {there} of its values are there")
        elif there:
            text = f"{transaction}, value {index} is not there, {there} of its values are"
            yield Finding(Kind.INTERMEDIATE, partition, text)


def of_read(history: History, seen: Seen) -> Iterator[Finding]:
    """Whether a reader of committed values could get this one, by what is known so far."""
    reader, value, asked = seen
    if value.transaction < 0:
        return
    transaction = history.transactions.get(value.transaction)
    text = f"{_name(value)} by {reader}"
    if transaction is None:
        yield Finding(Kind.PHANTOM, value.partition, f"{text}, which no transaction wrote")
    elif transaction.committed is False or value.place in transaction.late:
        yield Finding(Kind.ABORTED, value.partition, f"{text}, of {transaction.who}")
    elif not asked:
        yield Finding(Kind.INTERMEDIATE, value.partition, f"{text}, of {transaction.who}")


def _of_readers(history: History) -> Iterator[Finding]:
    at = {partition: {each.offset: each for each in values} for partition, values in history.log.items()}
    for seen in history.seen:
        found = list(of_read(history, seen))
        yield from found
        value = seen.value
        if found or value.transaction < 0 or value.partition not in at:
            continue
        now = at[value.partition].get(value.offset)
        if now != value and value.offset >= history.starts.get(value.partition, 0):
            text = f"{_name(value)} by {seen.reader}, now {'nothing' if now is None else _name(now)}"
            yield Finding(Kind.PHANTOM, value.partition, text)


def _of_groups(history: History) -> Iterator[Finding]:
    """Each input is in one committed transaction, and none is left out below the last of them. If the outcome of a
    transaction is unknown, its writes show it; one that wrote nothing is not counted on.
    """
    there = {value.transaction for values in history.log.values() for value in values}
    takers: dict[Partition, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    doubtful: set[tuple[Partition, int]] = set()
    for transaction in history.transactions.values():
        is_committed = transaction.committed or (transaction.committed is None and transaction.number in there)
        for value in transaction.reads:
            if is_committed:
                takers[value.partition][value.offset].append(transaction.number)
            elif transaction.committed is None and not transaction.appends:
                doubtful.add((value.partition, value.offset))
    for partition, offsets in sorted(takers.items()):
        for offset, numbers in sorted(offsets.items()):
            if len(numbers) > 1:
                text = f"offset {offset} by transactions {', '.join(map(str, numbers))}"
                yield Finding(Kind.REPEATED, partition, text)
        end = max(offsets)
        for value in history.log.get(partition, ()):
            if value.offset < end and value.offset not in offsets and (partition, value.offset) not in doubtful:
                yield Finding(Kind.PASSED_OVER, partition, f"{_name(value)}, a later one was consumed")


def _of_cycles(history: History) -> Iterator[Finding]:
    for kind, edges in ((Kind.CYCLE, _edges(history)), (Kind.WRITE_CYCLE, _write_edges(history))):
        for component in _components(edges):
            members = sorted({node[1] for node in component if node[0] in _TRANSACTIONS})
            if len(members) > 1:
                shown = ", ".join(map(str, members[:10])) + (", ..." if len(members) > 10 else "")
                yield Finding(kind, -1, f"transactions {shown}")


Node = tuple[str, Any, int]
"""A transaction ("free", number, 0), one that was come to by an order of writes ("held", number, 0), which only a read
leads on from, or a place in a list of versions ("place", partition, index)."""

_TRANSACTIONS = ("free", "held")

Edges = dict[Node, dict[Node, None]]


def _edges(history: History) -> Edges:
    """The edges of the cycles that must not exist: a transaction that read from another comes after it, and who wrote
    later in a partition does, but of such orders of writes no two come in succession: the one in between may have
    written before and after.
    """
    edges = _write_edges(history, "held")
    for transaction in history.transactions.values():
        for value in transaction.reads:
            if value.transaction >= 0 and value.transaction != transaction.number:
                for kind in _TRANSACTIONS:
                    source, target = (kind, value.transaction, 0), ("free", transaction.number, 0)
                    edges.setdefault(source, {})[target] = None
    return edges


def _write_edges(history: History, target: str = "free") -> Edges:
    """Each transaction to all that wrote later in one of its partitions, by way of the places in it."""
    edges: Edges = {}
    for partition, values in history.log.items():
        for index, value in enumerate(values):
            place, following = ("place", partition, index), ("place", partition, index + 1)
            edges.setdefault(place, {})[following] = None
            if value.transaction >= 0:
                edges[place][target, value.transaction, 0] = None
                edges.setdefault(("free", value.transaction, 0), {})[following] = None
    return edges


def _components(edges: Edges) -> Iterator[list[Node]]:
    """Strongly connected components of more than one node (Tarjan's algorithm, without recursion)."""
    number: dict[Hashable, int] = {}
    low: dict[Hashable, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    for root in edges:
        if root in number:
            continue
        work: list[tuple[Node, Iterator[Node]]] = [(root, iter(edges[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for each in following:
                if each not in number:
                    number[each] = low[each] = len(number)
                    stack.append(each)
                    on_stack.add(each)
                    work.append((each, iter(edges.get(each, ()))))
                    break
                if each in on_stack:
                    low[node] = min(low[node], number[each])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        yield component


def _name(value: Value) -> str:
    if value.transaction < 0:
        return f"a record of another run at offset {value.offset}"
    return f"transaction {value.transaction}, value {value.place} at offset {value.offset}"
