"""The pipelines that come with Ottla beside the same queries on Spark's Kafka connector: `python -m bench.pipelines`.

    python -m bench.pipelines                                    activity, metrics and ledger, a million events each
    python -m bench.pipelines --events 10000000 --alone ledger   by hand: what it takes, what memory and state it keeps
    python -m bench.pipelines --json docs/performance.json       keep the results for `python -m bench.render`

A topic of events is made beforehand; a run takes all of it with availableNow and a new checkpoint. The other side is
the pipeline's own `build`, whose reads and writes are of the connector: JSON by `from_json` and `to_json`, and at least
once, since it knows nothing else; Ottla writes exactly once. One JVM runs both by turns. CPU seconds are those of Spark
(JVM and Python workers) and of the broker, a process of its own on the same cores.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench import brokers, compare, results
from bench.spark import SETTINGS, Cost, Tree, session
from bench.tables import Section
from ottla.pipelines.runner import Job, Options, Pipeline, load
from ottla.pipelines.runner.session import prepare

KAFKA, OTTLA = "Spark's connector", "ottla, exactly-once"
PARTITIONS = 3
BATCH_RECORDS = 500_000
"""Of a batch: a stream that is behind takes large ones."""
BEGIN_S = 1_790_000_000
STOP_S = 3600.0

VISITOR = "id div 100000 % 4 * 5000 + id % 5000"
"""Five thousand visitors for 33 minutes, then as many others, who come back when their sessions are over."""
EVENTS: Mapping[str, tuple[str, str]] = {
    "activity": (
        f"concat('user-', {VISITOR})",
        f"named_struct('user', concat('user-', {VISITOR}), 'page', element_at(array('/', '/product', '/cart',"
        " '/checkout', '/help'), cast(pmod(hash(id), 5) as int) + 1), 'at', timestamp_millis({begin} + id * 20))",
    ),
    "metrics": (
        "concat('host-', id % 100)",
        "named_struct('host', concat('host-', id % 100), 'name', element_at(array('cpu', 'memory', 'disk_free'),"
        " cast(pmod(id div 100, 3) as int) + 1), 'value', pmod(hash(id), 1000) / 1000d,"
        " 'at', timestamp_millis({begin} + id * 10))",
    ),
    "ledger": (
        "concat('account-', id % 1000)",
        "named_struct('id', cast(id as string), 'kind', element_at(array('deposit', 'withdraw', 'transfer'),"
        " cast(pmod(hash(id), 3) as int) + 1), 'account', concat('account-', id % 1000),"
        " 'to', concat('account-', pmod(hash(id, 1), 1000)), 'amount', cast(1 + pmod(hash(id, 2), 10000) as bigint),"
        " 'at', timestamp_millis({begin} + id * 10))",
    ),
}
"""Key and value of event number `id`, in the order of their times."""
CHANGES: Mapping[str, dict[str, Any]] = {
    "activity": {"delay": "10 minutes", "every": "10 minutes"},
    "metrics": {"delay": "10 minutes", "rules": "cpu > 0.999"},
    "ledger": {},
}
"""Settings: partitions are read at different speeds, and what is late is dropped."""


class ByConnector(Job):
    """A job whose topics are read and written by Spark's Kafka connector."""

    def read(
        self, setting: str, schema: str | None = None, *, format: str | None = None, key_format: str = "string",
        group: str | None = None, dead_letters: bool = True, **options: str,
    ) -> DataFrame:  # fmt: skip
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic(setting)}
        chosen |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_RECORDS)}
        frame = self.spark.readStream.format("kafka").options(**chosen).load()
        assert schema is not None
        return frame.withColumns({
            "key": f.col("key").cast("string"), "value": f.from_json(f.col("value").cast("string"), schema),
        })  # fmt: skip

    def write_to(
        self, query: str, frame: DataFrame, *, mode: str = "append", format: str = "binary", delivery: str = "",
        **options: str,
    ) -> None:  # fmt: skip
        if format == "json":
            frame = frame.withColumn("value", f.to_json("value"))
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "kafka.compression.type": "lz4", **options}
        self.start(query, frame.writeStream.format("kafka").options(**chosen).outputMode(mode))


class Bench:
    """A broker, a Spark session, and runs of pipelines on both."""

    def __init__(self, broker: brokers.Side, spark: SparkSession) -> None:
        self.broker, self.spark = broker, prepare(spark)
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._numbers = itertools.count()
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._tree = Tree(int(jvm.java.lang.ProcessHandle.current().pid()))

    @contextmanager
    def topics(self, names: list[str]) -> Iterator[dict[str, str]]:
        number = next(self._numbers)
        found = {name: f"bench-{name}-{number}" for name in names}
        new = [NewTopic(topic, PARTITIONS, 1) for topic in found.values()]
        for future in self._admin.create_topics(new).values():
            future.result(60)
        try:
            yield found
        finally:
            for future in self._admin.delete_topics(list(found.values())).values():
                future.result(60)

    def cpu_seconds(self) -> float:
        """Of Spark, since it started."""
        return self._tree.cpu_seconds()

    def fill(self, name: str, topic: str, events: int) -> None:
        """In one task, so that each partition is in the order of the events' times."""
        key, value = (text.replace("{begin}", str(BEGIN_S * 1000)) for text in EVENTS[name])
        frame = self.spark.range(0, events, 1, 1).selectExpr(f"{key} as key", f"to_json({value}) as value")
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, "kafka.compression.type": "lz4"}
        frame.write.format("ottla").options(**options).mode("append").save()

    def run(self, kind: type[Job], pipeline: Pipeline, source: str, events: int) -> tuple[Cost, dict[str, float]]:
        """All of the topic once, to topics of its own; what it cost, and the state that it had at the end."""
        settings = {setting.name: setting.default for setting in pipeline.settings}
        of_topics = [setting.name for setting in pipeline.settings if setting.about.startswith("topic of")]
        with (
            self.topics([name for name in of_topics if name != "input"]) as made,
            tempfile.TemporaryDirectory() as work,
        ):
            chosen = pipeline.values({**settings, **CHANGES[pipeline.name], **made, "input": source})
            options = Options(self.bootstrap, once=True, batch_records=BATCH_RECORDS, partitions=PARTITIONS)
            job = kind(pipeline, options, chosen, lambda: self.spark, work)
            broker, spark, began = brokers.cpu_seconds(self.broker.pid), self._tree.cpu_seconds(), time.monotonic()
            with sampled(self._tree) as memory_mb:
                pipeline.build(job)
                for started in job.queries:
                    assert started.query.awaitTermination(STOP_S), f"{pipeline.name} has not ended"
            cost = Cost(
                time.monotonic() - began, self._tree.cpu_seconds() - spark,
                brokers.cpu_seconds(self.broker.pid) - broker,
            )  # fmt: skip
            half = len(memory_mb) // 2
            state = {
                "memory MB, first half": max(memory_mb[:half] or [0.0]), "second half": max(memory_mb[half:] or [0.0]),
                "state rows": 0.0, "state MB": 0.0,
            }  # fmt: skip
            for started in job.queries:
                progress = started.query.recentProgress
                read = sum(int(each["numInputRows"]) for each in progress)
                assert read >= events, f"{pipeline.name}.{started.name} has read {read}"
                for operator in progress[-1]["stateOperators"]:
                    state["state rows"] += operator["numRowsTotal"]
                    state["state MB"] += operator["memoryUsedBytes"] / 1e6
            state["checkpoints MB"] = sum(each.stat().st_size for each in Path(work).rglob("*") if each.is_file()) / 1e6
            return cost, state


@contextmanager
def sampled(tree: Tree) -> Iterator[list[float]]:
    """Memory of Spark (JVM and Python workers) once a second, in MB."""
    found: list[float] = []
    over = threading.Event()

    def work() -> None:
        while not over.wait(1.0):
            found.append(tree.memory_mb())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def measured(
    bench: Bench, name: str, events: int, rounds: int, warm_up: int, sides: Mapping[str, type[Job]]
) -> dict[str, list[dict[str, float]]]:
    """The figures of every round by side."""
    pipeline = load(name)
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    with bench.topics(["input"]) as made:
        bench.fill(name, made["input"], warm_up)
        for kind in sides.values():
            bench.run(kind, pipeline, made["input"], warm_up)
    with bench.topics(["input"]) as made:
        bench.fill(name, made["input"], events)
        for _ in range(rounds):
            for side, kind in sides.items():
                cost, state = bench.run(kind, pipeline, made["input"], events)
                millions = events / 1e6
                found[side].append({
                    "K events/s": events / cost.seconds / 1e3,
                    "CPU-s per M events, Spark": cost.spark_cpu_s / millions,
                    "CPU-s per M events, broker": cost.broker_cpu_s / millions,
                    **state,
                })  # fmt: skip
                print(f"{name} {side}: {found[side][-1]}", flush=True)
    return found


def row(side: str, rounds: list[dict[str, float]], others: list[dict[str, float]] | None) -> dict[str, str]:
    found = {"side": side}
    for name in rounds[0]:
        found[name] = compare.short(statistics.median(each[name] for each in rounds))
    if others is None:
        return found
    ratios = [ours["K events/s"] / theirs["K events/s"] for ours, theirs in zip(rounds, others, strict=True)]
    found["x connector's events/s"] = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return found


def sections(bench: Bench, options: argparse.Namespace, only: Callable[[str], bool]) -> Iterator[Section]:
    for name, events in itertools.product(filter(only, EVENTS), options.events):
        sides: dict[str, type[Job]] = {OTTLA: Job} if options.alone else {KAFKA: ByConnector, OTTLA: Job}
        rounds = measured(bench, name, events, options.rounds, min(options.warm_up, events), sides)
        lines = [row(side, each, rounds.get(KAFKA)) for side, each in rounds.items()]
        data = {side: {"rounds": each} for side, each in rounds.items()}
        title = f"Pipeline {name}, {events:,} events, {PARTITIONS} partitions"
        yield Section(title, lines, key=f"pipeline-{name}-{events}", data=data)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipelines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(EVENTS)}; all by default")
    parser.add_argument("--events", type=int, action="append", help="of a run; may be repeated (1,000,000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=500_000, help="events of each side before each pipeline")
    parser.add_argument("--alone", action="store_true", help="without the connector")
    parser.add_argument("--json", type=Path, help="where results are kept")
    options = parser.parse_args()
    options.events = options.events or [1_000_000]
    if others := set(options.pipelines).difference(EVENTS):
        parser.error(f"no pipeline {', '.join(others)} is measured; there are {', '.join(EVENTS)}")
    kept = results.Results.read(options.json) if options.json else results.Results()
    made = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": results.commit(), "machine": results.machine(),
        "rule": f"{options.warm_up:,} events of each side in the same JVM before each pipeline",
        "windows": f"{options.rounds} rounds", "missing": "",
    }  # fmt: skip
    print(f"{made['machine']}; commit {made['commit']}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
        broker = brokers.make("ottla", Path(base), SETTINGS)
        broker.start()
        try:
            bench = Bench(broker, session(2))
            bench.spark.conf.set("spark.sql.shuffle.partitions", "4")
            bench.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
            for section in sections(bench, options, lambda name: not options.pipelines or name in options.pipelines):
                print(f"\n### {section.title}\n\n{results.markdown(section)}", flush=True)
                kept.sections[section.key] = results.Kept(
                    "pipelines", section.title, section.rows, section.note, section.data, made
                )
                if options.json:
                    kept.write(options.json)
        finally:
            broker.stop_and_delete()


if __name__ == "__main__":
    main()
