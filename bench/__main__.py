"""Run Ottla and Apache Kafka under the same load and print what each took, with ratios.

    python -m bench                     every table, about ten minutes
    python -m bench produce fetch       some of them
    python -m bench --side ottla ...    one side only, while working on it
    python -m bench --markdown FILE     also write the tables as Markdown

Figures on a shared machine move by tens of percent between runs: read the ratios, and the CPU seconds per GB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import embed, groups, workloads
from bench.brokers import SIDES, Kafka, Ottla, make, resident_mb
from bench.load import Result
from bench.tables import Run, all_tables

Row = dict[str, Any]
Table = list[Row]


def rate_columns(side: str, result: Result) -> Row:
    return {
        "side": side,
        "req/s": round(result.requests_per_s),
        "MB/s": round(result.mb_per_s, 1),
        "CPU-s/GB": round(result.cpu_s_per_gb, 2),
        "p50 ms": round(result.percentile(0.5), 2),
        "p99 ms": round(result.percentile(0.99), 2),
        "p99.9 ms": round(result.percentile(0.999), 2),
        "RSS MB": round(result.resident_mb),
    }


class Bench:
    def __init__(self, sides: list[str], seconds: float, base: Path) -> None:
        self.sides = sides
        self.seconds = seconds
        self.base = base

    def each(
        self,
        measure: Callable[[Ottla | Kafka], Row],
        settings: dict[str, str] | None = None,
        sides: list[str] | None = None,
    ) -> Table:
        """A row per side, each on a fresh directory, one after the other so that they do not share the machine."""
        rows = []
        for name in sides or self.sides:
            broker = make(name, self.base, settings)
            empty_page_cache()
            broker.start()
            try:
                rows.append({"side": name, **measure(broker)})
            finally:
                broker.stop()
                shutil.rmtree(broker.data, ignore_errors=True)
        return rows

    def produce(self) -> dict[str, Table]:
        tables = {}
        for label, size, record in (("16 KB", 16 << 10, 100), ("64 KB", 64 << 10, 100), ("1 MB", 1000 << 10, 100)):
            table = self.each(
                lambda s, size=size, record=record: rate_columns(
                    s.name, workloads.produce(s, size, self.seconds, record_size=record)
                )
            )
            bare = workloads.bare_produce(self.base, size, min(self.seconds, 3))
            table.append({**rate_columns("bare loop", bare)})
            tables[f"Produce, {label} batches, acks=all, 6 connections x 5 in flight"] = table
        return tables

    def small(self) -> dict[str, Table]:
        table = self.each(lambda s: rate_columns(s.name, workloads.produce(s, 1, self.seconds)))
        table.append(rate_columns("bare loop", workloads.bare_produce(self.base, 1, min(self.seconds, 3))))
        return {"Produce, one 100-byte record per request, 6 connections x 5 in flight": table}

    def durable(self) -> dict[str, Table]:
        config = {"flush.messages": "1"}
        return {
            "Produce, 16 KB batches, fsynced before the answer (flush.messages=1)": self.each(
                lambda s: rate_columns(s.name, workloads.produce(s, 16 << 10, self.seconds, topic_config=config))
            )
        }

    def fetch(self) -> dict[str, Table]:
        tables = {}
        for label, size in (("64 KB", 64 << 10), ("256 KB", 256 << 10), ("1 MB", 1 << 20)):
            table = self.each(
                lambda s, size=size: rate_columns(s.name, workloads.fetch(s, self.seconds, fetch_bytes=size))
            )
            table.append(rate_columns("bare loop", workloads.bare_fetch(self.base, size, min(self.seconds, 3))))
            tables[f"Fetch of cached data, {label} answers, 6 connections x 2 in flight"] = table
        return tables

    def latency(self) -> dict[str, Table]:
        def measure(side: Ottla | Kafka) -> Row:
            result = workloads.round_trip(side, 4000)
            return {f"p{q * 100:g} ms": round(result.percentile(q), 3) for q in (0.5, 0.9, 0.99, 0.999)}

        return {"One record in to the same record out (long poll)": self.each(measure)}

    def start(self) -> dict[str, Table]:
        rows = []
        for name in self.sides:
            starts, stops, idle = [], [], 0.0
            for _ in range(5 if name == "ottla" else 3):
                broker = make(name, self.base)
                starts.append(broker.start())
                time.sleep(2)
                idle = resident_mb(broker.pid)
                stops.append(broker.stop())
                shutil.rmtree(broker.data, ignore_errors=True)
            rows.append(
                {
                    "side": name,
                    "start s (median)": round(statistics.median(starts), 3),
                    "stop s (median)": round(statistics.median(stops), 3),
                    "idle RSS MB": round(idle),
                }
            )
        return {"Start of an empty node to the first answer, and memory at rest": rows}

    def embed(self) -> dict[str, Table]:
        return {"A broker for a test, medians": embed.table(self.sides, self.base)}

    def clients(self) -> dict[str, Table]:
        def rdkafka(side: Ottla | Kafka) -> Row:
            result = workloads.librdkafka(side, self.seconds)
            return {
                "records/s": round(result.requests_per_s),
                "MB/s": round(result.mb_per_s, 1),
                "CPU-s/GB": round(result.cpu_s_per_gb, 2),
            }

        def java(side: Ottla | Kafka) -> Row:
            result = workloads.java_producer(side, 1_000_000)
            return {
                "records/s": round(result.requests_per_s),
                "MB/s": round(result.mb_per_s, 1),
                "CPU-s/GB": round(result.cpu_s_per_gb, 2),
            }

        return {
            "librdkafka producer (confluent-kafka), 100-byte records": self.each(rdkafka),
            "Java ProducerPerformance, 1 M records of 100 bytes": self.each(java),
        }

    def partitions(self) -> dict[str, Table]:
        rows = []
        for count in (1_000, 10_000):
            table = self.each(lambda s, count=count: workloads.many_partitions(s, count))
            rows += [{"partitions": count, **{k: _rounded(v) for k, v in row.items()}} for row in table]
        return {"Many partitions: create, stop, start, memory, p99 of produce beside them": rows}

    def connections(self) -> dict[str, Table]:
        def idle(side: Ottla | Kafka) -> Row:
            cost, p99 = workloads.idle_connections(side, 1000)
            return {"memory of 1,000 idle, MB": round(cost, 1), "p99 ms beside them": round(p99, 2)}

        return {
            "1,000 idle connections": self.each(idle),
            "1,000 busy connections, 1 KB requests": self.each(
                lambda s: rate_columns(s.name, workloads.busy_connections(s, 1000, self.seconds))
            ),
        }

    def measured(self, measure: Callable[[Ottla | Kafka], groups.Measured]) -> dict[str, groups.Measured]:
        """By side and name, for `groups.pivot`."""
        found = {}
        for name in self.sides:
            rows = self.each(measure, groups.SETTINGS, [name])
            found[name] = {key: value for key, value in rows[0].items() if key != "side"}
        return found

    def groups(self) -> dict[str, Table]:
        seconds = min(self.seconds, 1.5)
        commits = self.measured(lambda s: groups.requests(s, seconds))
        rebalances = self.measured(groups.rebalances)

        def clients(side: Ottla | Kafka) -> Row:
            eager, cooperative = (groups.librdkafka(side, name) for name in ("range", "cooperative-sticky"))
            return {f"{kind}: {name}": value for kind, row in (("eager", eager), ("cooperative", cooperative))
                    for name, value in row.items()}  # fmt: skip

        return {
            "Groups: requests per second": groups.pivot("load", commits, ["req/s", "CPU ms per 1,000"]),
            "Groups: rebalances, from the first request to the last assignment":
                groups.pivot("event, members", rebalances, ["ms", "CPU ms"]),
            "Produce and fetch of 1 KB beside a group of 1,000 that rebalances all the time":
                self.each(lambda s: _all_rounded(groups.bystander(s, 1000, 4.0)), groups.SETTINGS),
            "Restart with 1,000,000 commits in one partition of __consumer_offsets and a group of 1,000 in it":
                self.each(lambda s: _all_rounded(groups.failover(s)), groups.SETTINGS),
            "8 librdkafka consumers (confluent-kafka), 16 partitions, heartbeat.interval.ms=100":
                self.each(clients, groups.SETTINGS),
        }  # fmt: skip

    def segments(self) -> dict[str, Table]:
        return {
            "A log of 100 segments: start, memory, fetch at random places": self.each(
                lambda s: {k: _rounded(v) for k, v in workloads.many_segments(s, 100).items()}
            )
        }

    def cold(self) -> dict[str, Table]:
        def measure(side: Ottla | Kafka) -> Row:
            result, read = workloads.cold_reads(side, self.seconds)
            return {
                "p50 ms": round(result.percentile(0.5), 2),
                "p99 ms": round(result.percentile(0.99), 2),
                "worst ms": round(max(result.latencies_ms), 1),
                "cold reader MB/s": round(read),
            }

        return {"Produce of 1 KB while another client reads data that is not in memory": self.each(measure)}


def empty_page_cache() -> None:
    """Start each side with free memory, where we may: what the other side wrote would have to be evicted meanwhile."""
    os.sync()
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")


def _all_rounded(row: Row) -> Row:
    return {name: _rounded(value) for name, value in row.items()}


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


TABLES = [
    "produce", "small", "fetch", "latency", "start", "durable", "clients", "partitions", "connections", "segments",
    "cold", "embed", "groups",
]  # fmt: skip


def with_ratios(rows: Table) -> Table:
    """Append Ottla / Kafka for every number where both sides stand in the table once."""
    by_side = {row.get("side"): row for row in rows}
    if len(by_side) != len(rows) or not {"ottla", "kafka"} <= by_side.keys():
        return rows
    ratio: Row = {"side": "ottla / kafka"}
    for name, value in by_side["ottla"].items():
        other = by_side["kafka"].get(name)
        if name != "side" and isinstance(value, int | float) and isinstance(other, int | float) and other:
            ratio[name] = f"{value / other:.2f} x"
    return [*rows, ratio]


def markdown(title: str, rows: Table) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"### {title}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    return f"{os.cpu_count()} cores ({model}), Linux {platform.release()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--side", action="append", choices=list(SIDES))
    parser.add_argument("--seconds", type=float, default=5.0, help="measured seconds of each load")
    parser.add_argument("--rounds", type=int, default=3, help="measured windows of each side, in alternation")
    parser.add_argument("--directory", type=Path, help="where data goes (default: the temporary directory)")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    registered = all_tables()
    for name in arguments.tables:
        if name not in [*TABLES, *registered]:
            parser.error(f"no table {name!r}; there are {', '.join([*TABLES, *registered])}")
    found: dict[str, Table] = {}
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=arguments.directory) as base:
        sides = arguments.side or list(SIDES)
        bench = Bench(sides, arguments.seconds, Path(base))
        run = Run(sides, arguments.seconds, arguments.rounds, Path(base))
        for name in arguments.tables or [*TABLES, *registered]:
            sections = [(s.title, s.rows) for s in registered[name].make(run)] if name in registered else None
            for title, rows in sections or getattr(bench, name)().items():
                found[title] = with_ratios(rows)
                print("\n" + markdown(title, found[title]), flush=True)
    if arguments.markdown:
        text = "\n".join(markdown(title, rows) for title, rows in found.items())
        arguments.markdown.write_text(f"{machine()}\n\n{text}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
