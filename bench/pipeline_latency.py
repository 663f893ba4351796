"""Measure the latency of pipelines beside Spark's Kafka connector: `python -m bench.pipeline_latency`.

Records come at a steady rate; each is done when the batch that it is in has ended, which is when its results can be
read (with exactly-once their transaction is committed by then). Rows of PostgreSQL have no partner; they are done when
a consumer of committed records has them. The first seconds, in which the JVM warms up, are left out. CPU seconds are
those of Spark for the same time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

import ottla.pipelines.runner
from bench import results
from bench.method import brokers
from bench.pipeline_loads import LOADS, Load
from bench.pipelines import KAFKA, OTTLA, PARTITIONS, Bench, ByConnector, lake_session, outputs
from bench.spark import SETTINGS
from bench.tables import Section
from ottla import arrow
from ottla.pipelines.runner import Job, Options

NAMES = [name for name, load in LOADS.items() if load.inputs and load.pipeline != "replay"]
"""Pipelines that read topics."""
ROWS = "postgres-in"
"""Follows a table."""
ALL = [*NAMES, ROWS]
Arrived = dict[tuple[str, int], list[int]]
"""Time at which each record of a partition arrived (ms since the epoch), by topic and partition, then by offset."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_latency", description=__doc__)
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(ALL)}; all by default")
    parser.add_argument("--rate", type=int, default=2000, help="events a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=30, help="seconds that are left out")
    options = parser.parse_args()
    if others := set(options.pipelines).difference(ALL):
        parser.error(f"no pipeline {', '.join(others)} is measured; there are {', '.join(ALL)}")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
        broker = brokers.make("ottla", Path(base), SETTINGS)
        broker.start()
        try:
            bench = Bench(broker, lake_session())
            bench.spark.conf.set("spark.sql.shuffle.partitions", "2")
            for name in options.pipelines or ALL:
                sides: dict[str, type[Job]] = {KAFKA: ByConnector, OTTLA: Job}
                if name == ROWS:
                    rows = [{"side": OTTLA, **run_rows(bench, options)}]
                else:
                    rows = [{"side": side, **run(bench, kind, name, options)} for side, kind in sides.items()]
                title = f"Pipeline {name}, {options.rate:,} events a second"
                print(f"\n### {title}\n\n{results.markdown(Section(title, rows, key=name))}", flush=True)
        finally:
            broker.stop_and_delete()


def run(bench: Bench, kind: type[Job], name: str, options: argparse.Namespace) -> dict[str, str]:
    load = LOADS[name]
    pipeline = ottla.pipelines.runner.load(load.pipeline)
    count = options.rate * (options.seconds + options.warm_up)
    with (
        bench.topics([*load.inputs, *outputs(pipeline, load)]) as made,
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as work,
        load.store(work, count) as stored,
    ):
        events = events_of(bench, load, made, count)
        chosen = pipeline.values({**load.settings, **stored, **made})
        queries = f"{work}/checkpoints"
        job = kind(pipeline, Options(bench.bootstrap, partitions=PARTITIONS), chosen, lambda: bench.spark, queries)
        pipeline.build(job)
        batches: dict[int, tuple[str, dict[str, Any]]] = {}
        over = threading.Event()
        watcher = threading.Thread(target=watch, args=(job, batches, over), daemon=True)
        watcher.start()
        cpu = [0.0]
        began = time.time()
        feed(bench, events, options.rate, lambda: cpu.__setitem__(0, bench.cpu_seconds()), options.warm_up)
        spent = bench.cpu_seconds() - cpu[0]
        time.sleep(5)  # for the batch that is under way
        over.set()
        watcher.join()
        for started in job.queries:
            started.query.stop()
        arrived = arrivals(bench.bootstrap, [made[setting] for setting in load.inputs])
        found = latencies(batches.values(), arrived, (began + options.warm_up) * 1000)
    return row(found, spent, len(batches), options)


def row(found: list[float], spent_s: float, batches: int, options: argparse.Namespace) -> dict[str, str]:
    """Median and p99 of sorted latencies in ms."""
    return {
        "p50 ms": f"{statistics.median(found):,.0f}",
        "p99 ms": f"{found[int(len(found) * 0.99)]:,.0f}",
        "batches": str(batches),
        "CPU-s per M events, Spark": f"{spent_s / options.seconds / options.rate * 1e6:.1f}",
    }


def run_rows(bench: Bench, options: argparse.Namespace) -> dict[str, str]:
    """Latencies from the commit of a row to its record."""
    load = LOADS[ROWS]
    pipeline = ottla.pipelines.runner.load(load.pipeline)
    with (
        bench.topics([]),
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as work,
        load.store(work, 0) as stored,
    ):
        chosen = pipeline.values({**load.settings, **stored})
        job = Job(
            pipeline, Options(bench.bootstrap, partitions=PARTITIONS), chosen, lambda: bench.spark, f"{work}/kept"
        )
        pipeline.build(job)
        seen: dict[int, float] = {}
        over = threading.Event()
        topic = f"{load.settings['prefix']}{load.settings['tables']}"
        reader = threading.Thread(target=read_rows, args=(bench.bootstrap, topic, seen, over), daemon=True)
        reader.start()
        insert_rows(stored["database"], options.rate, 0, options.warm_up)
        cpu, first = bench.cpu_seconds(), options.rate * options.warm_up
        committed = insert_rows(stored["database"], options.rate, first, options.seconds)
        spent = bench.cpu_seconds() - cpu
        batches = len({each["batchId"] for started in job.queries for each in started.query.recentProgress})
        time.sleep(5)  # for the batch that is under way
        over.set()
        reader.join()
        for started in job.queries:
            started.query.stop()
    assert committed.keys() <= seen.keys(), f"{len(committed.keys() - seen.keys())} rows have not come"
    return row(sorted((seen[id] - at) * 1000 for id, at in committed.items()), spent, batches, options)


def insert_rows(database: str, rate: int, first: int, seconds: int) -> dict[int, float]:
    """Twenty in each transaction; when the transaction of each id was committed."""
    import psycopg

    found: dict[int, float] = {}
    began = time.monotonic()
    with psycopg.connect(database, autocommit=True) as connection:
        for number in range(0, rate * seconds, 20):
            time.sleep(max(0.0, number / rate - (time.monotonic() - began)))
            ids = range(first + number, first + number + 20)
            connection.execute(
                "INSERT INTO rows SELECT id, 'customer-' || id %% 10000, id / 4.0"
                " FROM generate_series(%s::bigint, %s) AS id",
                (ids[0], ids[-1]),
            )
            found |= dict.fromkeys(ids, time.monotonic())
    return found


def read_rows(bootstrap: str, topic: str, seen: dict[int, float], over: threading.Event) -> None:
    chosen = {"bootstrap.servers": bootstrap, "group.id": "bench-rows", "auto.offset.reset": "earliest"}
    consumer = Consumer({**chosen, "isolation.level": "read_committed", "log_level": 0})
    consumer.subscribe([topic])
    while not over.is_set():
        for message in consumer.consume(1000, 0.1):
            if message.error() is None:
                seen[int(message.key() or b"")] = time.monotonic()
    consumer.close()


def events_of(bench: Bench, load: Load, made: Mapping[str, str], count: int) -> list[tuple[str, Any, Any]]:
    """Topic, key and value, with the times at which they come, so that watermarks move as they would."""
    found = []
    for setting, each in load.inputs.items():
        rows = each.frame(bench.spark, count, time.time_ns() // 10**6).collect()
        found += [(number / each.share, made[setting], row.key, row.value) for number, row in enumerate(rows)]
    return [event[1:] for event in sorted(found, key=lambda event: event[0])]


def feed(bench: Bench, events: list[tuple[str, Any, Any]], rate: int, begin: Any, warm_up_s: int) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 5, "log_level": 0})
    began, is_warm = time.monotonic(), False
    for number, (topic, key, value) in enumerate(events):
        if number % 20 == 0:
            ahead = number / rate - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
            if not is_warm and number >= warm_up_s * rate:
                is_warm = True
                begin()
        producer.produce(topic, value, key)
        producer.poll(0)
    assert producer.flush(60) == 0


def watch(job: Job, batches: dict[int, Any], over: threading.Event) -> None:
    """Progress of the queries, which Spark keeps for a while only."""
    while not over.wait(0.5):
        for started in job.queries:
            for each in started.query.recentProgress:
                if each["numInputRows"]:
                    batches[hash((started.name, each["batchId"]))] = (started.name, dict(each))


def arrivals(bootstrap: str, topics: list[str]) -> Arrived:
    found: Arrived = defaultdict(list)
    for topic in topics:
        table = arrow.read(topic, bootstrap, columns=["partition", "offset", "timestamp"]).read_all()
        times = table["timestamp"].cast("int64").to_pylist()
        for partition, at in zip(table["partition"].to_pylist(), times, strict=True):
            found[topic, partition].append(at // 1000)
    return found


def latencies(batches: Any, arrived: Arrived, since_ms: float) -> list[float]:
    """Latencies in ms, sorted, of every record that arrived after the warm-up, for each query."""
    found: list[float] = []
    for _, batch in batches:
        ended = datetime.fromisoformat(batch["timestamp"]).timestamp() * 1000 + batch["durationMs"]["triggerExecution"]
        for source in batch["sources"]:
            start, end = (parsed(source[name]) for name in ("startOffset", "endOffset"))
            for place in end.keys() & arrived.keys():
                times = arrived[place][start.get(place, 0) : end[place]]
                found += [ended - at for at in times[bisect_left(times, since_ms) :]]
    return sorted(found)


def parsed(offsets: Any) -> dict[tuple[str, int], int]:
    given = (json.loads(offsets) if isinstance(offsets, str) else offsets) or {}
    by_topic = {topic: of for topic, of in given.items() if isinstance(of, dict)}
    return {(topic, int(number)): offset for topic, of in by_topic.items() for number, offset in of.items()}


if __name__ == "__main__":
    main()
