"""Measure Ottla's source and sink for Spark beside Spark's own Kafka connector: `python -m bench.spark`.

    python -m bench.spark                                   source, sink and stream of 100 and 1,000 bytes
    python -m bench.spark --rows 1000000 --rows 10000000 --size 100 source sink
    python -m bench.spark growth                            1, 2 and 4 partitions on one core and on two
    python -m bench.spark --kafka                           all sides read from and write to a real Apache Kafka
    python -m bench.spark --page                            what docs/performance.md shows, in five minutes

One JVM runs all sides in turn, after a warm-up of all of them. `source` reads a topic in one batch into Spark's noop
sink; `sink` writes rows that Spark makes (a literal value, no key); `stream` is a query from topic to topic with
availableNow and a new checkpoint. The ceiling is what any Python data source can reach: a source that yields batches
made beforehand and a sink that drops Arrow batches, without a broker. CPU seconds of Spark (the JVM and its Python
workers) and of the broker, a process that shares the cores, are apart. `peers/spark/jars.sh` fetches the jars once.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench import results
from bench.method import brokers, compare
from bench.method.page_cache import PageCache
from bench.spark_ceiling import Ceiling
from bench.tables import Section
from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.producer import Producer

ROOT = Path(__file__).parents[1]
JARS = ROOT / ".cache" / "spark-jars"
LOADS = ("source", "sink", "stream", "growth")
SIZES = {100: 1, 1000: 4}
"""Bytes of a value, and by how much the number of rows is divided."""
KAFKA, OTTLA, EXACTLY_ONCE, CEILING = "Spark's connector", "ottla", "ottla, exactly-once", "ceiling"
SETTINGS = {"log.retention.check.interval.ms": "2000", "log.segment.delete.delay.ms": "1000"}
"""So that the gigabytes of some minutes do not stay on the disk."""
TICKS = os.sysconf("SC_CLK_TCK")


PAGE = (
    ("source", 100, 4_000_000), ("source", 1000, 1_000_000),
    ("sink", 100, 4_000_000), ("sink", 1000, 1_000_000),
    ("stream", 100, 2_000_000),
)  # fmt: skip
"""Loads that docs/performance.md shows, with the size of values and rows."""
AGAIN_S = 6.0
"""Warm-up of a load with other values than those it is warm with."""


@dataclass(frozen=True)
class Cost:
    """What one run of one side took."""

    seconds: float
    spark_cpu_s: float
    broker_cpu_s: float

    def figures(self, rows: int, size: int) -> dict[str, float]:
        millions = rows / 1e6
        return {
            "M rows/s": millions / self.seconds,
            "MB/s": millions * size / self.seconds,
            "CPU-s per M rows, Spark": self.spark_cpu_s / millions,
            "CPU-s per M rows, broker": self.broker_cpu_s / millions,
        }


@dataclass
class Bench:
    """A broker, a Spark session, and how much is asked for."""

    broker: brokers.Side
    spark: SparkSession
    rounds: int
    warm_up_s: float
    """Time that Spark's connector is under each load before it is measured; the other sides run as often, all once at
    least."""
    partitions: int = 4
    with_ceiling: bool = True
    page_cache: PageCache | None = None
    """Filled before each run: else one side's log would be in memory that deleted logs have left, another's in memory
    that the machine has to ask its host for."""

    def __post_init__(self) -> None:
        self._topics = itertools.count()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        self._tree = Tree(int(jvm.java.lang.ProcessHandle.current().pid()))
        self._warm: set[str] = set()
        """Loads that are warm with some values."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    @contextmanager
    def topic(self) -> Iterator[str]:
        name = f"bench-spark-{self.spark.sparkContext.startTime}-{next(self._topics)}"
        self._admin.create_topics([NewTopic(name, self.partitions, 1)])[name].result(60)
        try:
            yield name
        finally:
            self._admin.delete_topics([name])[name].result(60)

    @contextmanager
    def filled(self, rows: int, size: int) -> Iterator[str]:
        """A new topic with random values in it."""
        with self.topic() as name:
            cluster = Cluster(ClientConfig(parse_addresses(self.bootstrap), "bench"))
            producer = Producer(cluster, batch_bytes=256 << 10)
            producer.start()
            for begin in range(0, rows, 10_000):
                count = min(10_000, rows - begin)
                values = pa.Array.from_buffers(pa.binary(size), count, [None, pa.py_buffer(os.urandom(size * count))])
                numbers = pa.array([number % self.partitions for number in range(count)], pa.int32())
                producer.send(name, pa.record_batch([values.cast(pa.binary()), numbers], ["value", "partition"]))
            producer.flush()
            producer.close()
            cluster.close()
            yield name

    def cost(self, act: Callable[[], object]) -> Cost:
        os.sync()
        if self.page_cache is not None:
            self.page_cache.fill()
        broker, spark, began = brokers.cpu_seconds(self.broker.pid), self._tree.cpu_seconds(), time.monotonic()
        act()
        took = time.monotonic() - began
        return Cost(took, self._tree.cpu_seconds() - spark, brokers.cpu_seconds(self.broker.pid) - broker)

    def measure(
        self, load: str, sides: Mapping[str, Callable[[], Cost]], rows: int, size: int
    ) -> dict[str, list[dict[str, float]]]:
        """The figures of every round by side, once all are warm."""
        due_s = min(AGAIN_S, self.warm_up_s) if load in self._warm else self.warm_up_s
        self._warm.add(load)
        loaded_s = dict.fromkeys(sides, 0.0)
        while not loaded_s[KAFKA] or loaded_s[KAFKA] < due_s:
            for side, act in sides.items():
                loaded_s[side] += act().seconds
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(self.rounds):
            for side, act in sides.items():
                found[side].append(act().figures(rows, size))
        return found

    # Loads

    def source(self, rows: int, size: int) -> dict[str, list[dict[str, float]]]:
        with self.filled(rows, size) as topic:
            made: dict[str, int | str] = {"rows": rows, "size": size, "partitions": self.partitions, "topic": topic}
            loads: dict[str, Callable[[], DataFrame]] = {
                KAFKA: lambda: self._read("kafka", topic),
                OTTLA: lambda: self._read("ottla", topic),
            }
            if self.with_ceiling:
                loads[CEILING] = lambda: self.spark.read.format("ceiling").options(**made).load()
            for side, load in loads.items():
                assert load().count() == rows // self.partitions * self.partitions, side

            def reading(load: Callable[[], DataFrame]) -> Callable[[], Cost]:
                return lambda: self.cost(lambda: load().write.format("noop").mode("overwrite").save())

            return self.measure("source", {side: reading(load) for side, load in loads.items()}, rows, size)

    def sink(self, rows: int, size: int) -> dict[str, list[dict[str, float]]]:
        value = f.lit(os.urandom(size))

        def writing(name: str, **options: str) -> Callable[[], Cost]:
            def run() -> Cost:
                frame = self.spark.range(0, rows, 1, self.partitions).select(value.alias("value"))
                with self.topic() as topic:
                    out = self._writes(frame.write.format(name).mode("append"), topic, **options)
                    return self.cost(out.save)

            return run

        sides = {
            KAFKA: writing("kafka"),
            OTTLA: writing("ottla"),
            EXACTLY_ONCE: writing("ottla", delivery="exactly-once"),
        }
        if self.with_ceiling:
            sides[CEILING] = writing("ceiling")
        return self.measure("sink", sides, rows, size)

    def stream(self, rows: int, size: int) -> dict[str, list[dict[str, float]]]:
        with self.filled(rows, size) as topic:

            def query(name: str, **options: str) -> Callable[[], Cost]:
                def run() -> Cost:
                    with self.topic() as other, tempfile.TemporaryDirectory() as checkpoint:
                        frame = self._read(name, topic, is_stream=True).select("key", "value")
                        out = frame.writeStream.format(name).trigger(availableNow=True)
                        out = self._writes(out.option("checkpointLocation", checkpoint), other, **options)
                        found = self.cost(lambda: out.start().awaitTermination())
                        assert self._read("ottla", other).count() == rows, f"{name} {options}"
                        return found

                return run

            sides = {
                KAFKA: query("kafka"),
                OTTLA: query("ottla"),
                EXACTLY_ONCE: query("ottla", delivery="exactly-once"),
            }
            return self.measure("stream", sides, rows, size)

    def _read(self, name: str, topic: str, *, is_stream: bool = False) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        reader = self.spark.readStream if is_stream else self.spark.read
        return reader.format(name).options(**options).load()

    def _writes(self, writer: Any, topic: str, **options: str) -> Any:
        return writer.options(**{"kafka.bootstrap.servers": self.bootstrap, "topic": topic, **options})


class Tree:
    """The CPU time of a process and all below it, those that have ended as well.

    What has ended keeps what it had when it was seen last: a Python worker is idle when Spark ends it, and its parent
    may be gone by then, so that nobody has its time.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._spent: dict[tuple[int, int], int] = {}
        """Ticks, by process id and time of start."""
        self.alive: set[int] = set()

    def memory_mb(self) -> float:
        """Proportional set sizes: what Python workers share with the one that they are forked from counts once."""
        self.cpu_seconds()
        found = 0
        for pid in self.alive:
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:  # ended meanwhile
                continue
            found += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        return found / 1024

    def cpu_seconds(self) -> float:
        parents, spent = {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:  # ended meanwhile
                continue
            pid = int(path.parent.name)
            parents[pid], spent[pid] = int(fields[1]), ((pid, int(fields[19])), int(fields[11]) + int(fields[12]))
        below = {self.root}
        while more := {pid for pid, parent in parents.items() if parent in below} - below:
            below |= more
        self.alive = below
        self._spent |= dict(spent[pid] for pid in below)
        return sum(self._spent.values()) / TICKS


def fetch_jars(script: str = "jars.sh") -> None:
    """Have a script of `peers/spark` fetch what it fetches, unless it is there. Raises SystemExit where it cannot."""
    if subprocess.run([ROOT / "peers" / "spark" / script]).returncode:
        raise SystemExit(f"peers/spark/{script} could not fetch its jars; what it said is above")


def session(cores: int, jars: Iterable[Path] | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """`jars`: those of the connector by default."""
    jars = JARS.glob("*.jar") if jars is None else jars
    os.environ["PYSPARK_PYTHON"] = sys.executable
    chosen: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(map(str, sorted(jars))),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(settings or {}),
    }
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=chosen).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Ceiling)
    return spark


def row(side: str, rounds: list[dict[str, float]], kafka: list[dict[str, float]]) -> dict[str, str]:
    """Medians, and the ratio of the rates pair by pair."""
    found = {"side": side}
    for name in rounds[0]:
        found[name] = compare.short(statistics.median(each[name] for each in rounds))
    ratios = [ours["M rows/s"] / theirs["M rows/s"] for ours, theirs in zip(rounds, kafka, strict=True)]
    found["x connector's rows/s"] = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return found


TITLES = {
    "source": "Spark: batch read of a topic, {rows} rows of {size} bytes",
    "sink": "Spark: batch write to a topic, {rows} rows of {size} bytes",
    "stream": "Spark: query from topic to topic with availableNow, {rows} rows of {size} bytes",
}


def sections(bench: Bench, load: str, options: argparse.Namespace) -> Iterator[Section]:
    for size, many in itertools.product(options.size, options.rows):
        yield section(bench, load, size, many // SIZES[size], f"-{many // SIZES[size]}")


def section(bench: Bench, load: str, size: int, rows: int, suffix: str = "") -> Section:
    rounds = getattr(bench, load)(rows, size)
    title = TITLES[load].format(rows=f"{rows:,}", size=size) + f", {bench.partitions} partitions"
    lines = [row(side, each, rounds[KAFKA]) for side, each in rounds.items()]
    data = {side: {"rounds": each} for side, each in rounds.items()}
    return Section(title, lines, key=f"spark-{load}-{size}{suffix}", data=data)


def page_sections(bench: Bench, options: argparse.Namespace) -> Iterator[Section]:
    """What docs/performance.md shows, under keys without the number of rows; `--rows` makes it fewer."""
    for load, size, rows in PAGE:
        yield section(bench, load, size, min([rows, *(options.rows or ())]))


def growth(broker: brokers.Side, cache: PageCache, options: argparse.Namespace) -> Iterator[Section]:
    """How the rates grow with cores and partitions, for values of 100 bytes."""
    rows = min(options.rows)
    for load in ("source", "sink"):
        lines, data = [], {}
        for cores in (1, 2):
            spark = session(cores)
            for partitions in (1, 2, 4):
                bench = Bench(broker, spark, options.rounds, options.warm_up, partitions, page_cache=cache)
                rounds = getattr(bench, load)(rows, 100)
                for side, each in rounds.items():
                    name = {"cores": cores, "partitions": partitions}
                    lines.append({**name, **row(side, each, rounds[KAFKA])})
                    data[f"{side}, {cores} cores, {partitions} partitions"] = {"rounds": each}
            spark.stop()
        title = f"Spark {load}: cores of Spark and partitions, {rows:,} rows of 100 bytes"
        yield Section(title, lines, key=f"spark-growth-{load}", data=data)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "loads", nargs="*", metavar="LOAD", help=f"{', '.join(LOADS)} (default: all of them except growth)"
    )
    parser.add_argument("--page", action="store_true", help="measure what docs/performance.md shows, and no ceiling")
    parser.add_argument(
        "--rows", type=int, action="append", help="number of 100-byte rows; a quarter of it with 1000 bytes (1,000,000)"
    )
    parser.add_argument(
        "--size", type=int, action="append", choices=list(SIZES), help="bytes of a value (100 and 1000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each side (3)")
    parser.add_argument(
        "--warm-up", type=float, default=25.0, help="seconds that Spark's connector has each load before (25)"
    )
    parser.add_argument("--kafka", action="store_true", help="use a broker of Apache Kafka instead of Ottla's")
    results.add_arguments(parser)
    parser.add_argument("--directory", type=Path, help="directory of the broker's data (the temporary directory)")
    options = parser.parse_args()
    if options.page and (options.loads or options.kafka or options.size):
        parser.error("--page has loads of its own, on Ottla")
    if not options.page:
        options.rows, options.size = options.rows or [1_000_000], options.size or list(SIZES)
    options.loads = options.loads or [load for load in LOADS if load != "growth"]
    if others := set(options.loads).difference(LOADS):
        parser.error(f"no load {', '.join(others)}; there are {', '.join(LOADS)}")
    return options


def main() -> None:
    options = arguments()
    fetch_jars()
    kept = results.Results.read(options.json) if options.json else results.Results()
    rule = f"{options.warm_up:g} s of Spark's connector in the same JVM before each load, as many runs of the others"
    made = results.how(rule, results.rounds(options.rounds), options.busy)
    results.stop_on_sigterm()
    print(f"{made['machine']}; commit {made['commit']}", flush=True)
    name = "kafka" if options.kafka else "ottla"
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=options.directory) as base:
        broker = brokers.make(name, Path(base), SETTINGS)
        broker.start()
        cache = PageCache(Path(base))
        try:
            for load in ["page"] if options.page else options.loads:
                if load == "growth":
                    found = growth(broker, cache, options)
                elif load == "page":
                    bench = Bench(
                        broker, session(2), options.rounds, options.warm_up, with_ceiling=False, page_cache=cache
                    )
                    found = page_sections(bench, options)
                else:
                    bench = Bench(broker, session(2), options.rounds, options.warm_up, page_cache=cache)
                    found = sections(bench, load, options)
                for section in found:
                    if options.kafka:
                        section.title += ", on Apache Kafka"
                        section.key += "-on-kafka"
                    print(f"\n### {section.title}\n\n{results.markdown(section)}", flush=True)
                    kept.put("spark", section, made)
                    if options.json:
                        kept.write(options.json)
        finally:
            broker.stop_and_delete()


if __name__ == "__main__":
    main()
