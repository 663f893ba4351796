"""From a record's arrival to what a pipeline makes of it, beside Spark's connector: `python -m bench.pipeline_latency`.

Records come at a steady rate; each is done when the batch that it is in has ended, which is when its results can be
read (with exactly-once their transaction is committed by then). The first seconds, in which the JVM warms up, are left
out. CPU seconds are those of Spark for the same time.
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
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench import brokers, results
from bench.pipelines import CHANGES, EVENTS, KAFKA, OTTLA, PARTITIONS, Bench, ByConnector
from bench.spark import SETTINGS, session
from bench.tables import Section
from ottla import arrow
from ottla.pipelines.runner import Job, Options, load

Arrived = dict[int, list[int]]
"""When the records of a partition came (ms since the epoch), by offset."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_latency", description=__doc__)
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(EVENTS)}; all by default")
    parser.add_argument("--rate", type=int, default=2000, help="events a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=30, help="seconds that are left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
        broker = brokers.make("ottla", Path(base), SETTINGS)
        broker.start()
        try:
            bench = Bench(broker, session(2))
            bench.spark.conf.set("spark.sql.shuffle.partitions", "2")
            for name in options.pipelines or EVENTS:
                sides: dict[str, type[Job]] = {KAFKA: ByConnector, OTTLA: Job}
                rows = [{"side": side, **run(bench, kind, name, options)} for side, kind in sides.items()]
                title = f"Pipeline {name}, {options.rate:,} events a second"
                print(f"\n### {title}\n\n{results.markdown(Section(title, rows, key=name))}", flush=True)
        finally:
            broker.stop_and_delete()


def run(bench: Bench, kind: type[Job], name: str, options: argparse.Namespace) -> dict[str, str]:
    pipeline = load(name)
    count = options.rate * (options.seconds + options.warm_up)
    # Times of the events are those at which they come, so that watermarks move as they would.
    key, value = (text.replace("{begin}", str(time.time_ns() // 10**6)) for text in EVENTS[name])
    events = bench.spark.range(count).selectExpr(f"{key} as key", f"to_json({value}) as value").collect()
    of_topics = [setting.name for setting in pipeline.settings if setting.about.startswith("topic of")]
    with bench.topics([*dict.fromkeys(["input", *of_topics])]) as made, tempfile.TemporaryDirectory() as work:
        chosen = pipeline.values({**CHANGES[name], **made})
        job = kind(pipeline, Options(bench.bootstrap, partitions=PARTITIONS), chosen, lambda: bench.spark, work)
        pipeline.build(job)
        batches: dict[int, tuple[str, dict[str, Any]]] = {}
        over = threading.Event()
        watcher = threading.Thread(target=watch, args=(job, batches, over), daemon=True)
        watcher.start()
        cpu = [0.0]
        began = time.time()
        feed(
            bench, made["input"], events, options.rate, lambda: cpu.__setitem__(0, bench.cpu_seconds()), options.warm_up
        )
        spent = bench.cpu_seconds() - cpu[0]
        time.sleep(5)  # for the batch that is under way
        over.set()
        watcher.join()
        for started in job.queries:
            started.query.stop()
        arrived = arrivals(bench.bootstrap, made["input"])
        found = latencies(batches.values(), arrived, made["input"], (began + options.warm_up) * 1000)
    return {
        "p50 ms": f"{statistics.median(found):,.0f}", "p99 ms": f"{found[int(len(found) * 0.99)]:,.0f}",
        "batches": str(len(batches)),
        "CPU-s per M events, Spark": f"{spent / options.seconds / options.rate * 1e6:.1f}",
    }  # fmt: skip


def feed(bench: Bench, topic: str, events: list[Any], rate: int, begin: Any, warm_up_s: int) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 5, "log_level": 0})
    began, is_warm = time.monotonic(), False
    for number, event in enumerate(events):
        if number % 20 == 0:
            ahead = number / rate - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
            if not is_warm and number >= warm_up_s * rate:
                is_warm = True
                begin()
        producer.produce(topic, event.value, event.key)
        producer.poll(0)
    assert producer.flush(60) == 0


def watch(job: Job, batches: dict[int, Any], over: threading.Event) -> None:
    """Progress of the queries, which Spark keeps for a while only."""
    while not over.wait(0.5):
        for started in job.queries:
            for each in started.query.recentProgress:
                if each["numInputRows"]:
                    batches[hash((started.name, each["batchId"]))] = (started.name, dict(each))


def arrivals(bootstrap: str, topic: str) -> Arrived:
    table = arrow.read(topic, bootstrap, columns=["partition", "offset", "timestamp"]).read_all()
    found: defaultdict[int, list[int]] = defaultdict(list)
    for partition, at in zip(table["partition"].to_pylist(), table["timestamp"].cast("int64").to_pylist(), strict=True):
        found[partition].append(at // 1000)
    return found


def latencies(batches: Any, arrived: Arrived, topic: str, since_ms: float) -> list[float]:
    """Of every record that came after the warm-up, in ms, sorted; of each query."""
    found: list[float] = []
    for _, batch in batches:
        ended = datetime.fromisoformat(batch["timestamp"]).timestamp() * 1000 + batch["durationMs"]["triggerExecution"]
        for source in batch["sources"]:
            start, end = (parsed(source[name], topic) for name in ("startOffset", "endOffset"))
            for partition, stop in end.items():
                times = arrived[int(partition)][start.get(partition, 0) : stop]
                found += [ended - at for at in times[bisect_left(times, since_ms) :]]
    return sorted(found)


def parsed(offsets: Any, topic: str) -> dict[str, int]:
    given = json.loads(offsets) if isinstance(offsets, str) else offsets
    return dict((given or {}).get(topic, {}))


if __name__ == "__main__":
    main()
