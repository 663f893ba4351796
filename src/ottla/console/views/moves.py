"""Reassignments under way: which replicas are added to a partition, how much of them is copied, and the throttle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ottla.client.security import SecurityFailure
from ottla.console.asking import Asking
from ottla.console.brokers import Refused, ensure_none
from ottla.console.cluster import Cluster
from ottla.console.moving import throttles
from ottla.console.moving.copying import Copies, Pace
from ottla.console.moving.under_way import under_way
from ottla.console.views.paging import Paging, paged
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey


@dataclass(frozen=True)
class MoveRow:
    topic: str
    partition: int
    replicas: list[int]
    """All of them, those to be removed as well."""
    adding: list[int]
    removing: list[int]
    in_sync: list[int]
    """Added replicas that are in sync."""
    copied_bytes: str | None = None
    """The bytes of all added replicas; None where no broker says."""
    bytes: str | None = None
    """What they are to have in the end: the size of the leader's log for each."""


@dataclass(frozen=True)
class BrokerRate:
    broker: int
    bytes_per_second: str


@dataclass(frozen=True)
class Moves:
    rows: list[MoveRow]
    paging: Paging
    adding: int
    """Replicas that are added, in all partitions."""
    in_sync: int
    """Added replicas that are in sync."""
    copied_bytes: str | None
    bytes: str | None
    bytes_per_second: str | None
    """Measured between this look and those before it; None at the first."""
    left_s: int | None
    """Seconds until all is copied at that rate; None where it is not known."""
    throttle: list[BrokerRate]
    """Brokers that have one."""
    is_left_behind: bool
    """Whether there is a throttle, and nothing is moved."""


def moves(asking: Asking) -> Moves:
    cluster, none = asking.cluster(), list[MoveRow]()
    rows = asking.attempt("moves", lambda: _rows(asking), none)
    copies: Copies = _copies(asking, cluster, rows) if rows else {}
    pace = asking.trends.copied(copies) if copies else None
    rows = [_sized(each, copies) for each in rows]
    page, paging = paged(rows, asking.number("page"), len(rows))
    rates = rates_of(asking, cluster)
    return Moves(
        list(page),
        paging,
        sum(len(each.adding) for each in rows),
        sum(len(each.in_sync) for each in rows),
        *_told(pace),
        [BrokerRate(node, str(rate)) for node, rate in rates.items()],
        bool(rates) and not rows and "moves" not in asking.problems,
    )


def rates_of(asking: Asking, cluster: Cluster) -> throttles.Rates:
    """The throttles of brokers that tell them soon; none where the user may not see settings."""

    def read() -> tuple[throttles.Rates, list[KafkaError | OSError]]:
        try:
            found = throttles.look(asking.brokers, cluster)
        except (Refused, SecurityFailure):  # the rest of the page says so
            return {}, []
        except (KafkaError, OSError) as error:
            return {}, [error]
        return found.rates, list(found.failures.values())

    rates, failures = asking.soon("throttle", throttles.FRESH_S, read) or ({}, [])
    for error in failures:
        asking.fail("throttle", error)
    return rates


def _told(pace: Pace | None) -> tuple[str | None, str | None, str | None, int | None]:
    if pace is None:
        return None, None, None, None
    rate = None if pace.per_second is None else str(pace.per_second)
    return str(pace.copied), str(pace.bytes), rate, pace.left_s


def _rows(asking: Asking) -> list[MoveRow]:
    """Raises KafkaError, OSError."""
    topics = asking.cluster().topics
    in_sync = {(topic.name, each.number): each.in_sync for topic in topics.values() for each in topic.partitions}
    return [_row(at[0], row, in_sync.get(at, ())) for at, row in sorted(under_way(asking.brokers).items())]


def _row(topic: str, row: Mapping[str, Any], in_sync: Any) -> MoveRow:
    adding = list(row["adding_replicas"])
    return MoveRow(
        topic,
        row["partition_index"],
        list(row["replicas"]),
        adding,
        list(row["removing_replicas"]),
        [node for node in adding if node in in_sync],
    )


def _copies(asking: Asking, cluster: Cluster, rows: Iterable[MoveRow]) -> Copies:
    """Sizes of the new replicas and of their leaders: one request to each broker, for these partitions. What a broker
    does not say is left out, and the reason is among the problems. Raises SecurityFailure."""
    leaders = {(topic.name, each.number): each.leader for topic in cluster.topics.values() for each in topic.partitions}
    wanted: dict[int, dict[str, list[int]]] = {}
    for row in rows:
        for node in {*row.adding, leaders.get((row.topic, row.partition), -1)} & cluster.nodes.keys():
            wanted.setdefault(node, {}).setdefault(row.topic, []).append(row.partition)

    def asked(node: int) -> Callable[[], dict[str, Any]]:
        topics = [{"topic": name, "partitions": numbers} for name, numbers in wanted[node].items()]
        return lambda: asking.brokers.ask(node, ApiKey.DESCRIBE_LOG_DIRS, {"topics": topics})

    nodes = sorted(wanted)
    sizes, silent = dict[tuple[str, int, int], int](), set[int]()
    for node, answer in zip(nodes, asking.brokers.gather([asked(node) for node in nodes]), strict=True):
        found_here = asking.attempt("sizes", lambda answer=answer: _sizes(answer), None)  # type: ignore[misc]
        if found_here is None:
            silent.add(node)
        else:
            sizes |= {(*at, node): size for at, size in found_here.items()}
    found: dict[tuple[str, int, int], tuple[int, int]] = {}
    for row in rows:
        whole = sizes.get((row.topic, row.partition, leaders.get((row.topic, row.partition), -1)))
        if whole is not None:
            for node in set(row.adding) & cluster.nodes.keys() - silent:
                found[row.topic, row.partition, node] = sizes.get((row.topic, row.partition, node), 0), whole
    return found


def _sizes(answer: dict[str, Any] | Exception) -> dict[tuple[str, int], int]:
    """Raises KafkaError, OSError."""
    if isinstance(answer, Exception):
        raise answer
    ensure_none(ApiKey.DESCRIBE_LOG_DIRS, answer)
    return {
        (topic["name"], part["partition_index"]): part["partition_size"]
        for directory in answer["results"]
        for topic in directory["topics"]
        for part in topic["partitions"]
        if not part.get("is_future_key")
    }


def _sized(row: MoveRow, copies: Copies) -> MoveRow:
    mine = [copies[row.topic, row.partition, node] for node in row.adding if (row.topic, row.partition, node) in copies]
    if not mine:
        return row
    copied = sum(min(have, whole) for have, whole in mine)
    return replace(row, copied_bytes=str(copied), bytes=str(sum(whole for _, whole in mine)))
