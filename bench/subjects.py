"""The tables of docs/performance.md by subject: which figure of which section is a row. Pure; `bench.render` writes.

A row whose section was not measured is left out. A summary row says which side is ahead, whichever that is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench.method import compare
from bench.results import Kept, Results

CONNECTOR, MIRROR_MAKER, EXACTLY_ONCE = "Spark's connector", "MirrorMaker 2", "ottla, exactly-once"
CPU = "CPU ms per 1,000"
EVEN = 0.05
"""Sides whose ratio is no further from one are even."""


@dataclass(frozen=True)
class Line:
    """A figure of a section, as a row."""

    label: str
    key: str
    figure: str
    unit: str
    name: str | None = None
    """The load, in a section of several."""
    lower: bool = False
    """Whether the lower figure is the better one."""
    cpu: str = ""
    """The figure that says what it cost the broker."""
    sides: tuple[str, str] = (compare.OURS, compare.THEIRS)
    scale: float = 1.0
    """Figures are multiplied by it."""

    def kept(self, results: Results) -> Kept | None:
        """The section that has the figure; None if it was not measured."""
        kept = results.sections.get(self.key)
        data = kept.data if kept else {}
        if self.name is not None:
            data = data.get(self.name, {})
        has_both = all(side in data and self.figure in data[side]["rounds"][0] for side in self.sides)
        return kept if has_both else None

    def rounds(self, kept: Kept) -> tuple[compare.Rounds, compare.Rounds]:
        ours, theirs = (kept.rounds(side, self.name) for side in self.sides)
        return ours, theirs

    def cells(self, kept: Kept, figure: str, unit: str = "") -> list[str]:
        """The medians of both sides."""
        values = [compare.medians(side).get(figure, float("nan")) * self.scale for side in self.rounds(kept)]
        return [f"{compare.short(value)} {unit}".strip() if value == value else "" for value in values]

    def ratio(self, kept: Kept) -> float:
        """The median of the ratios of the pairs, Ottla's to the other's."""
        ours, theirs = self.rounds(kept)
        return statistics.median(
            compare.ratios([each[self.figure] for each in ours], [each[self.figure] for each in theirs])
        )

    def ahead(self, kept: Kept) -> str:
        """Which side is better, and how many times: "Ottla 2.7 x"."""
        ratio = self.ratio(kept)
        better = 1 / ratio if self.lower else ratio
        if abs(better - 1) <= EVEN or abs(1 / better - 1) <= EVEN:
            return "even"
        theirs = {compare.THEIRS: "Kafka", CONNECTOR: "the connector"}.get(self.sides[1], self.sides[1])
        return f"Ottla {times(better)}" if better > 1 else f"**{theirs} {times(1 / better)}**"


def times(value: float) -> str:
    return f"{value:.0f} x" if value >= 10 else f"{value:.1f} x"


@dataclass(frozen=True)
class Subject:
    """A table of the page."""

    lines: tuple[Line, ...]
    first: str = ""
    """Above the labels."""
    columns: tuple[tuple[str, str], ...] = ()
    """Figures that stand beside: their name in the section, and in the table."""
    theirs: str = "Apache Kafka"
    beside_bare: bool = False
    """Whether the CPU is compared with the bare loop's too, where it was measured."""

    def sections(self, results: Results) -> list[Kept]:
        """Results that its rows are taken from, each once."""
        found = [kept for line in self.lines if (kept := line.kept(results))]
        return [kept for number, kept in enumerate(found) if kept not in found[:number]]

    def markdown(self, results: Results) -> str:
        """Empty if nothing of it was measured."""
        lines = [(line, kept) for line in self.lines if (kept := line.kept(results))]
        if not lines:
            return ""
        has_cpu = any(line.cpu for line, _ in lines)
        head = [self.first, "Ottla", self.theirs, f"Ottla / {self.theirs.removeprefix('Apache ')} (range)"]
        has_bare = self.beside_bare and any(compare.BARE in kept.data and line.cpu for line, kept in lines)
        head += ["CPU, ratio"] * has_cpu
        head += ["CPU, ratio to the bare loop"] * has_bare
        for _, label in self.columns:
            head += [f"{label}, Ottla", self.theirs.removeprefix("Apache ")]
        out = [_row(head), "|" + "---|" * len(head)]
        for line, kept in lines:
            ours, theirs = line.rounds(kept)
            cells = [line.label, *line.cells(kept, line.figure, line.unit)]
            cells.append(compare.ratio_text(ours, theirs, line.figure))
            if has_cpu:
                cells.append(compare.ratio_text(ours, theirs, line.cpu, with_range=False) if line.cpu else "")
            if has_bare:
                bare = kept.rounds(compare.BARE) if compare.BARE in kept.data else []
                cells.append(compare.ratio_text(ours, bare, line.cpu, with_range=False) if line.cpu and bare else "")
            for figure, _ in self.columns:
                cells += line.cells(kept, figure)
            out.append(_row(cells))
        return "\n".join(out) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def produce(label: str, key: str, figure: str = "req/s", unit: str = "requests/s") -> Line:
    return Line(label, key, figure, unit, cpu=CPU)


def _groups(label: str, name: str) -> Line:
    return Line(label, "group-requests", "req/s", "requests/s", name, cpu=CPU)


def _event(label: str, key: str, name: str) -> Line:
    return Line(label, key, "ms", "ms", name, lower=True, cpu="CPU ms")


def _spark(label: str, load: str, ours: str = compare.OURS) -> Line:
    return Line(label, f"spark-{load}", "M rows/s", "M rows/s", sides=(ours, CONNECTOR), cpu="CPU-s per M rows, Spark")


ONE_RECORD = produce("produce, one 100-byte record a request", "produce-one-record")
PRODUCE_16K = produce("produce, 16 KB batches", "produce-16k")
PRODUCE_64K = produce("produce, 64 KB batches", "produce-64k")
PRODUCE_1M = produce("produce, 1 MB batches", "produce-1m", "MB/s", "MB/s")
FSYNC = produce("produce, 16 KB batches, fsync before each answer", "produce-fsync")
MANY = produce("produce, 1 KB batches, 1,000 connections", "produce-1000-connections")
FETCH_64K = produce("fetch of cached data, 64 KB answers", "fetch-64k")
FETCH_1M = produce("fetch of cached data, 1 MB answers", "fetch-1m", "MB/s", "MB/s")
ROUND_TRIP = Line("from a producer to a consumer that waits, median", "round-trip", "p50 ms", "ms", lower=True)
START = Line("start to the first answer", "start", "start s", "s", lower=True)
IDLE = Line("memory when idle", "start", "idle RSS MB", "MB", lower=True)
FIRST_SECOND = Line("first second after the start", "first-seconds", "0 to 1 s", "requests/s")
COMMITS = _groups("commits of 20 partitions, 50 groups", "commit of 20 partitions, 50 groups x 5 in flight")
FETCHES = _groups(
    "offset fetches of 20 partitions, 50 groups", "offset fetch of 20 partitions, 50 groups x 5 in flight"
)
LEAVES = _event("one of 1,000 members leaves", "rebalances", "one leaves, 1,000")
JOINS = _event("one joins 1,000 members, KIP-848", "consumer-rebalances", "one joins, 1,000")
RECORDS = Line("transactional producer, a commit every 100 ms", "transactions-produce", "records/s", "records/s",
               cpu="CPU-s/GB")  # fmt: skip
COMMITTERS = Line("transactions of one record, ten producers", "transactions-commits-10", "commits/s", "commits/s",
                  cpu="CPU ms per commit")  # fmt: skip
DELIVERIES = Line("share group, 500 records a fetch", "share-groups-deliveries", "records/s", "records/s", cpu=CPU)
REPLICATED = produce("three nodes, three replicas, 16 KB batches", "replicated-16k")
SOURCE = _spark("batch read of 100-byte values", "source-100")
SINK = _spark("batch write of 100-byte values, exactly once", "sink-100", EXACTLY_ONCE)
MIRROR = Line("mirror, 1 KB records", "mirror", "MB/s", "MB/s", sides=(EXACTLY_ONCE, MIRROR_MAKER),
              cpu="CPU-s per GB")  # fmt: skip

AT_ONCE = _event("1,000 groups of 3 join at once", "rebalances", "1,000 groups of 3 join at once")
SUMMARY = (
    ONE_RECORD, PRODUCE_16K, PRODUCE_1M, FSYNC, MANY, FETCH_64K, FETCH_1M,
    replace(ROUND_TRIP, label="one record, from a producer to a consumer that waits"), START, IDLE, COMMITS,
    replace(LEAVES, label="rebalance: one of 1,000 members leaves"),
    replace(JOINS, label="rebalance, KIP-848: one joins 1,000 members"),
    replace(AT_ONCE, label=f"rebalance: {AT_ONCE.label}"),
    RECORDS, COMMITTERS, DELIVERIES, REPLICATED, replace(SOURCE, label=f"Spark: {SOURCE.label}"),
    replace(SINK, label=f"Spark: {SINK.label}"), MIRROR,
)  # fmt: skip
"""What readers ask first. Kafka's best rows are in it: a summary without them would flatter."""

SUBJECTS = {
    "throughput": Subject(
        (ONE_RECORD, PRODUCE_16K, PRODUCE_64K, PRODUCE_1M, FSYNC, MANY, FETCH_64K, FETCH_1M), "one node",
        (("p99 ms", "p99 ms"), ("p99.9 ms", "p99.9 ms")), beside_bare=True,
    ),
    "latency": Subject(
        tuple(Line(f"p{number}", "round-trip", f"p{number} ms", "ms", lower=True, cpu=CPU * (number == "50"))
              for number in ("50", "90", "99", "99.9")),
        "one record, from producer to consumer",
    ),
    "tails": Subject(
        (
            *(
                Line(f"a session of {partitions:,} partition{'s' * (partitions > 1)}", f"tail-{partitions}", "p50 ms",
                     "ms", lower=True, cpu=CPU)
                for partitions in (1, 20, 2000)
            ),
            Line("the last of 1,000 consumers that wait", "tail-crowd", "p50 ms", "ms", lower=True, cpu=CPU),
        ),
        "one record until a consumer has it, median",
    ),
    "start": Subject(
        (
            START, IDLE, Line("memory after produce load", "produce-one-record", "RSS MB", "MB", lower=True),
            Line("clean stop", "start", "stop s", "s", lower=True),
        ),
        "an empty node",
    ),
    "first-seconds": Subject(
        tuple(Line(stretch, "first-seconds", stretch, "requests/s")
              for stretch in ("0 to 1 s", "1 to 3 s", "3 to 6 s", "6 to 12 s", "12 to 18 s", "18 to 25 s")),
        "after the first request",
    ),
    "groups": Subject(
        (
            _groups("commit of 1 partition, one at a time", "commit of 1 partition, 1 group, one at a time"),
            COMMITS, FETCHES, _groups("heartbeats, 50 groups", "heartbeat, 50 groups x 5 in flight"),
        ),
        "requests",
    ),
    "rebalances": Subject(
        (
            *(
                _event(f"{'KIP-848: ' * ('consumer' in key)}{event}, {size} members", key, f"{event}, {size}")
                for key in ("rebalances", "consumer-rebalances") for size in ("10", "100", "1,000", "5,000")
                for event in ("first join", "one joins", "one leaves", "static one restarts")
            ),
            AT_ONCE,
        ),
        "event",
    ),
    "transactions": Subject(
        (
            RECORDS,
            Line("age of a record at a read_committed reader, median", "transactions-latency", "p50 ms", "ms",
                 lower=True, cpu=CPU),
            Line("transactions of one record, one producer", "transactions-commits-1", "commits/s", "commits/s",
                 cpu="CPU ms per commit"),
            COMMITTERS,
        ),
        "one node",
    ),
    "share-groups": Subject(
        (
            DELIVERIES,
            Line("share group, one record a fetch, 8 workers", "share-groups-jobs", "records/s", "records/s", cpu=CPU),
            Line("a record given back reaches the next worker, median", "share-groups-redelivery", "p50 ms", "ms",
                 lower=True, cpu="CPU ms per redelivery"),
        ),
        "one node",
    ),
    "cluster": Subject(
        (
            produce("produce, one 100-byte record a request", "replicated-one-record"), REPLICATED,
        ),
        "three replicas, acks=all", (("p99 ms", "p99 ms"),),
    ),
    "cluster-beside": Subject(
        (
            Line("an empty replica catches up", "catch-up", "MB/s", "MB/s", cpu="CPU-s/GB"),
            Line("start to the first replicated record", "cluster-start", "start s", "s", lower=True),
            Line("memory of a node (PSS)", "cluster-start", "PSS MB per node", "MB", lower=True),
        ),
        "three nodes",
    ),
    "spark": Subject(
        (
            SOURCE, _spark("batch read of 1,000-byte values", "source-1000"),
            _spark("batch write of 100-byte values, at least once", "sink-100"), SINK,
            _spark("batch write of 1,000-byte values, exactly once", "sink-1000", EXACTLY_ONCE),
            _spark("query from topic to topic, 100 bytes, at least once", "stream-100"),
            _spark("query from topic to topic, 100 bytes, exactly once", "stream-100", EXACTLY_ONCE),
        ),
        "Spark 4.2", (("CPU-s per M rows, broker", "broker CPU-s per M rows"),), CONNECTOR,
    ),
    "mirror": Subject(
        (
            MIRROR,
            Line("lag at 1,000 records/s, median", "mirror", "lag p50 ms", "ms", lower=True,
                 sides=(EXACTLY_ONCE, MIRROR_MAKER)),
            Line("lag at 1,000 records/s, p99", "mirror", "lag p99 ms", "ms", lower=True,
                 sides=(EXACTLY_ONCE, MIRROR_MAKER)),
            Line("memory of all its processes", "mirror", "second half", "MB", lower=True,
                 sides=(EXACTLY_ONCE, MIRROR_MAKER)),
        ),
        "", theirs=MIRROR_MAKER,
    ),
    "pipelines": Subject(
        tuple(
            Line(f"`{name}`", f"pipeline-{name}", "K events/s", "thousand events/s", sides=(EXACTLY_ONCE, CONNECTOR),
                 cpu="CPU-s per M events, Spark")
            for name in ("activity", "ledger")
        ),
        "pipeline", theirs=CONNECTOR,
    ),
    "throttled": Subject(
        tuple(Line(name, "throttled", "p99 ms", "ms", name, lower=True)
              for name in ("nobody", "a writer", "a writer, held to 1 MB/s", "a reader", "a reader, held to 1 MB/s")),
        "p99 beside",
    ),
}  # fmt: skip
"""By the name of their place."""


def summary(results: Results) -> str:
    """A row for each question, with the side that is ahead."""
    out = ["| | Ottla | Apache Kafka | ahead |", "|---|---|---|---|"]
    for line in SUMMARY:
        if kept := line.kept(results):
            theirs = {CONNECTOR: "Spark's connector: ", MIRROR_MAKER: "MirrorMaker 2: "}.get(line.sides[1], "")
            ours_cell, theirs_cell = line.cells(kept, line.figure, line.unit)
            out.append(_row([line.label, ours_cell, theirs + theirs_cell, line.ahead(kept)]))
    if row := failover_summary(results):
        out.append(row)
    return "\n".join(out) + "\n"


KILLED = "| a leader is killed: longest pause of a producer |"
SCENARIOS = {
    "leader": "kill -9 of a leader", "controller": "kill -9 of the active controller, which leads partitions too",
    "restart": "controlled restart",
}  # fmt: skip


def gaps_ms(results: Results, scenario: str, side: str, client: str) -> list[float]:
    """The longest times without an acknowledgement, sorted; none if that was not measured."""
    kept = results.sections.get("killed-nodes")
    rounds = kept.data.get(side, {}).get("rounds", []) if kept else []
    return sorted(gap for each in rounds for gap in each["gaps"].get(scenario, {}).get(client, []))


def failover(results: Results) -> str:
    """For each kind of strike, the median and the longest gap that each client saw."""
    head = ["what happens to a node of three", "client", "Ottla, median (longest)", "Apache Kafka", "Ottla / Kafka"]
    out = [_row(head), "|" + "---|" * len(head)]
    for scenario, client in ((scenario, client) for scenario in SCENARIOS for client in ("librdkafka", "java")):
        ours, theirs = (gaps_ms(results, scenario, side, client) for side in (compare.OURS, compare.THEIRS))
        if ours and theirs:
            ratio = statistics.median(ours) / statistics.median(theirs)
            cells = [
                f"{compare.short(statistics.median(each))} ms ({compare.short(each[-1])})" for each in (ours, theirs)
            ]
            out.append(_row([SCENARIOS[scenario], client, *cells, compare.times(ratio)]))
    return "\n".join(out) + "\n" if len(out) > 2 else ""


def failover_summary(results: Results) -> str:
    ours, theirs = (gaps_ms(results, "leader", side, "librdkafka") for side in (compare.OURS, compare.THEIRS))
    if not (ours and theirs):
        return ""
    medians = [statistics.median(each) for each in (ours, theirs)]
    cells = [f"{compare.short(each)} ms" for each in medians]
    ahead = (
        f"Ottla {times(medians[1] / medians[0])}"
        if medians[0] < medians[1]
        else (f"**Kafka {times(medians[0] / medians[1])}**")
    )
    return f"{KILLED} {' | '.join([*cells, ahead])} |"


def flood(results: Results) -> str:
    """For each attack what a bystander waited, and the memory of the broker at its peak."""
    kept = results.sections.get("flood")
    if kept is None:
        return ""
    head = [
        "attack",
        "bystander's p99.9, Ottla",
        "Kafka",
        "longest wait, Ottla",
        "Kafka",
        "peak memory, Ottla",
        "Kafka",
    ]
    out = [_row(head), "|" + "---|" * len(head)]
    for name in dict.fromkeys(row["attack"] for row in kept.rows):
        by_side = {row["side"]: row for row in kept.rows if row["attack"] == name}
        if {compare.OURS, compare.THEIRS} <= set(by_side):
            out.append(_row([name, *_pairs(by_side[compare.OURS], by_side[compare.THEIRS])]))
    return "\n".join(out) + "\n"


def _pairs(ours: dict[str, object], theirs: dict[str, object]) -> Iterator[str]:
    for column, unit in (("p99.9 ms", "ms"), ("longest ms", "ms"), ("peak", "MB")):
        for row in (ours, theirs):
            value = row[column]
            if not isinstance(value, float | int):
                yield str(value)  # the broker is gone
            else:
                yield f"{value:,.0f} {unit}" if value >= 100 else f"{value} {unit}"
