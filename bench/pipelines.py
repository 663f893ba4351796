"""Measure Ottla's pipelines beside the same queries on Spark's Kafka connector: `python -m bench.pipelines`.

    python -m bench.pipelines                                    every pipeline with a million events
    python -m bench.pipelines --events 10000000 --alone ledger   one pipeline on Ottla alone: rate, memory and state
    python -m bench.pipelines --page                             what docs/performance.md shows, in three minutes

Topics of events are filled first. A run reads all of them with availableNow and a new checkpoint; then Ottla's results
are compared with those of a batch query on the same records (`pipeline_loads.py`). The other side is the pipeline's own
`build`, which reads and writes through the connector: JSON by `from_json` and `to_json`, at least once, which is all
that the connector offers; Ottla writes exactly once. One JVM runs both in turn. CPU seconds of Spark (the JVM and its
Python workers) and of the broker, a process that shares the cores, are apart.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import ottla.pipelines.runner
from bench import results
from bench.method import brokers, compare
from bench.pipeline_loads import BEGIN_S, LOADS, Load, Ran
from bench.spark import JARS, SETTINGS, Cost, Tree, fetch_jars, session
from bench.tables import Section
from ottla.pipelines.lake import spark_settings
from ottla.pipelines.runner import Job, Options, Pipeline
from ottla.pipelines.runner.job import Started
from ottla.pipelines.runner.progress import Watch
from ottla.pipelines.runner.session import prepare
from ottla.pipelines.runner.state import QueryStatus

KAFKA, OTTLA = "Spark's connector", "ottla, exactly-once"
PARTITIONS = 3
WARM_UP_EVENTS = 500_000
"""Maximum number of events in a run of the warm-up."""
BATCH_RECORDS = 500_000
"""Records of a batch: a stream that is behind takes large ones."""
STOP_S = 3600.0
PAGE, PAGE_EVENTS = ("activity", "ledger"), 200_000
"""Pipelines that docs/performance.md shows, and their events."""


def lake_session() -> SparkSession:
    """Spark with the connector and Delta."""
    fetch_jars()
    fetch_jars("lake.sh")
    jars = [*JARS.glob("*.jar"), *JARS.with_name("lake-jars").glob("*.jar")]
    return session(2, jars, spark_settings({"kind": "delta", "delta": ""}))


class ByConnector(Job):
    """A job whose topics are read and written by Spark's Kafka connector."""

    def _source(
        self,
        topics: tuple[str, ...],
        schema: str | None = None,
        *,
        format: str | None = None,
        key_format: str = "string",
        group: str | None = None,
        dead_letters: bool = True,
        **options: str,
    ) -> DataFrame:
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": ",".join(topics), **options}
        chosen |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_RECORDS)}
        frame = self.spark.readStream.format("kafka").options(**chosen).load()
        if key_format == "string":
            frame = frame.withColumn("key", f.col("key").cast("string"))
        return (
            frame if schema is None else frame.withColumn("value", f.from_json(f.col("value").cast("string"), schema))
        )

    def write_to(
        self,
        query: str,
        frame: DataFrame,
        *,
        mode: str = "append",
        format: str = "binary",
        delivery: str = "",
        **options: str,
    ) -> None:
        if format == "json":
            frame = frame.withColumn("value", f.to_json("value"))
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "kafka.compression.type": "lz4", **options}
        self.start(query, frame.writeStream.format("kafka").options(**chosen).outputMode(mode))


class Bench:
    """A broker, a Spark session, and runs of pipelines on both."""

    def __init__(self, broker: brokers.Side, spark: SparkSession) -> None:
        self.broker, self.spark = broker, prepare(spark, local_checkpoints=True)
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._numbers = itertools.count()
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._tree = Tree(int(jvm.java.lang.ProcessHandle.current().pid()))

    @contextmanager
    def topics(self, names: Iterable[str]) -> Iterator[dict[str, str]]:
        """New topics, by the given names. In the end they are deleted, with all topics that were created meanwhile."""
        before = self._topics()
        number = next(self._numbers)
        found = {name: f"bench-{name}-{number}" for name in names}
        new = [NewTopic(topic, PARTITIONS, 1) for topic in found.values()]
        for future in self._admin.create_topics(new).values() if new else ():
            future.result(60)
        try:
            yield found
        finally:
            new_ones = sorted(self._topics() - before)
            for future in self._admin.delete_topics(new_ones).values() if new_ones else ():
                future.result(60)

    def _topics(self) -> set[str]:
        return {name for name in self._admin.list_topics(timeout=60).topics if not name.startswith("__")}

    def cpu_seconds(self) -> float:
        """CPU time of Spark since it started."""
        return self._tree.cpu_seconds()

    @contextmanager
    def filled(self, load: Load, events: int, begin_ms: int = BEGIN_S * 1000) -> Iterator[dict[str, str]]:
        """The topics that a load has, with so many events in all, by its settings."""
        with self.topics(load.inputs) as made:
            for setting, each in load.inputs.items():
                chosen = {"kafka.bootstrap.servers": self.bootstrap, "topic": made[setting]}
                frame = each.frame(self.spark, events, begin_ms)
                frame.write.format("ottla").options(**chosen, **{"kafka.compression.type": "lz4"}).mode("append").save()
            yield made

    def run(self, kind: type[Job], load: Load, made: Mapping[str, str], events: int) -> tuple[Cost, dict[str, float]]:
        """All of the topics once, to topics of its own; what it cost, and the state that it had at the end."""
        pipeline = ottla.pipelines.runner.load(load.pipeline)
        with (
            tempfile.TemporaryDirectory(prefix="ottla-bench-") as work,
            self.topics(outputs(pipeline, load)) as others,
            load.store(work, events) as stored,
        ):
            chosen = pipeline.values({**load.settings, **stored, **others, **made})
            options = Options(self.bootstrap, once=True, batch_records=BATCH_RECORDS, partitions=PARTITIONS)
            job = kind(pipeline, options, chosen, lambda: self.spark, f"{work}/checkpoints")
            broker, spark, began = brokers.cpu_seconds(self.broker.pid), self._tree.cpu_seconds(), time.monotonic()
            with sampled(self._tree) as memory_mb:
                pipeline.build(job)
                progress = {started.name: ended(started, job) for started in job.queries}
            cost = Cost(
                time.monotonic() - began,
                self._tree.cpu_seconds() - spark,
                brokers.cpu_seconds(self.broker.pid) - broker,
            )
            found = state(progress, events, memory_mb)
            files = [each for each in Path(work, "checkpoints").rglob("*") if each.is_file()]
            found["checkpoints MB"] = sum(each.stat().st_size for each in files) / 1e6
            if kind is Job:
                load.check(Ran(self.spark, self.bootstrap, chosen, events))
            return cost, found


def outputs(pipeline: Pipeline, load: Load) -> list[str]:
    """The settings of topics that are made for a run."""
    of_topics = [setting.name for setting in pipeline.settings if setting.about.startswith("topic ")]
    return [name for name in of_topics if name not in load.inputs]


def ended(started: Started, job: Job) -> list[Any]:
    """The progress of a query until its end. One that reads what it writes is started again while there is more, as
    by `ottla pipeline run --once`."""
    found: list[Any] = []
    topics = job.topics()
    watch = Watch(topics)
    try:
        while True:
            assert started.query.awaitTermination(STOP_S), f"{started.name} has not ended"
            found += [each for each in started.query.recentProgress if each["numInputRows"]]
            if not job.feedback:
                return found
            watch.look(started, QueryStatus(started.name))
            while watch.has_open_transaction(job.feedback):
                time.sleep(0.01)
            if not watch.is_behind(started.name, job.feedback):
                return found
            started.query = started.start()
    finally:
        topics.close()


def state(progress: Mapping[str, list[Any]], events: int, memory_mb: list[float]) -> dict[str, float]:
    """The state at the end of a run, and the memory meanwhile."""
    found = {**halves(memory_mb), "state rows": 0.0, "state MB": 0.0}
    for name, batches in progress.items():
        read = sum(int(each["numInputRows"]) for each in batches)
        assert read >= events, f"{name} has read {read}"
        for operator in batches[-1]["stateOperators"]:
            found["state rows"] += operator["numRowsTotal"]
            found["state MB"] += operator["memoryUsedBytes"] / 1e6
    return found


def halves(memory_mb: list[float]) -> dict[str, float]:
    """The maximum of each half of the samples; a sole sample is that of both."""
    half = len(memory_mb) // 2
    return {"memory MB, first half": max(memory_mb[:half] or memory_mb), "second half": max(memory_mb[half:])}


@contextmanager
def sampled(tree: Tree) -> Iterator[list[float]]:
    """Memory of Spark (JVM and Python workers) in MB once a second, at the end of a run that takes less."""
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
        if not found:
            found.append(tree.memory_mb())


def measured(
    bench: Bench, name: str, events: int, rounds: int, warm_up_s: float, sides: Mapping[str, type[Job]]
) -> dict[str, list[dict[str, float]]]:
    """The figures of every round by side, once all are warm: the first side has run for `warm_up_s`, the other one as
    often, and each once at least."""
    load = LOADS[name]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    first, loaded_s = next(iter(sides)), dict.fromkeys(sides, 0.0)
    warm_up = min(events, WARM_UP_EVENTS)
    with bench.filled(load, warm_up) as made:
        while not loaded_s[first] or loaded_s[first] < warm_up_s:
            for side, kind in sides.items():
                loaded_s[side] += bench.run(kind, load, made, warm_up)[0].seconds
    with bench.filled(load, events) as made:
        for _ in range(rounds):
            for side, kind in sides.items():
                cost, state = bench.run(kind, load, made, events)
                millions = events / 1e6
                found[side].append(
                    {
                        "K events/s": events / cost.seconds / 1e3,
                        "CPU-s per M events, Spark": cost.spark_cpu_s / millions,
                        "CPU-s per M events, broker": cost.broker_cpu_s / millions,
                        **state,
                    }
                )
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
    for name, events in itertools.product(filter(only, LOADS), options.events):
        is_alone = options.alone or not LOADS[name].on_connector
        sides: dict[str, type[Job]] = {OTTLA: Job} if is_alone else {KAFKA: ByConnector, OTTLA: Job}
        rounds = measured(bench, name, events, options.rounds, options.warm_up, sides)
        lines = [row(side, each, rounds.get(KAFKA)) for side, each in rounds.items()]
        data = {side: {"rounds": each} for side, each in rounds.items()}
        title = f"Pipeline {name}, {events:,} events, {PARTITIONS} partitions"
        yield Section(title, lines, key=f"pipeline-{name}" + ("" if options.page else f"-{events}"), data=data)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipelines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"{', '.join(LOADS)} (default: all of them)")
    parser.add_argument("--page", action="store_true", help=f"measure {' and '.join(PAGE)}, for docs/performance.md")
    parser.add_argument(
        "--events", type=int, action="append", help="number of events in a run; may be given again (1,000,000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each side (3)")
    parser.add_argument(
        "--warm-up", type=float, default=25.0, help="seconds that the first side runs each pipeline before (25)"
    )
    parser.add_argument("--alone", action="store_true", help="measure Ottla without the connector")
    results.add_arguments(parser)
    options = parser.parse_args()
    options.events = options.events or [PAGE_EVENTS if options.page else 1_000_000]
    if options.page:
        options.pipelines = options.pipelines or list(PAGE)
    if others := set(options.pipelines).difference(LOADS):
        parser.error(f"no pipeline {', '.join(others)} is measured; there are {', '.join(LOADS)}")
    kept = results.Results.read(options.json) if options.json else results.Results()
    rule = f"{options.warm_up:g} s of the first side in the same JVM before each pipeline, as many runs of the other"
    made = results.how(rule, results.rounds(options.rounds), options.busy)
    results.stop_on_sigterm()
    print(f"{made['machine']}; commit {made['commit']}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
        broker = brokers.make("ottla", Path(base), SETTINGS)
        broker.start()
        try:
            bench = Bench(broker, lake_session())
            bench.spark.conf.set("spark.sql.shuffle.partitions", "4")
            bench.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
            for section in sections(bench, options, lambda name: not options.pipelines or name in options.pipelines):
                print(f"\n### {section.title}\n\n{results.markdown(section)}", flush=True)
                kept.put("pipelines", section, made)
                if options.json:
                    kept.write(options.json)
        finally:
            broker.stop_and_delete()


if __name__ == "__main__":
    main()
