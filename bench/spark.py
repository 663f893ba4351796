"""Sources of Spark side by side: `python -m bench.spark`. Jars: `demo/setup.sh`. It is no table of `bench` yet.

Batch reads of a topic into Spark's sink that throws away, by turns, after a warm-up: Spark's own Kafka connector,
Ottla's source where it is installed, and a Python source that yields Arrow batches made beforehand: the ceiling. CPU
seconds are those of the driver's JVM and the Python workers below it, not the broker's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.testing import Broker

JARS = Path(__file__).parents[1] / ".cache" / "spark-jars"
PARTITIONS = 4
BATCH_ROWS = 50_000
TICKS = os.sysconf("SC_CLK_TCK")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32()),
    ]
)  # fmt: skip
COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


class Ceiling(DataSource):
    """Yields one Arrow batch again and again."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return CeilingReader(int(self.options["rows"]), int(self.options["size"]))


class CeilingReader(DataSourceReader):
    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        count = min(BATCH_ROWS, 16_000_000 // self.size)
        offsets = pa.array(range(count), pa.int64())
        batch = pa.record_batch(
            [
                pa.nulls(count, pa.binary()), pa.array([bytes(self.size)] * count), pa.array(["topic"] * count),
                pa.array([partition.value] * count, pa.int32()), offsets, offsets.cast(SCHEMA.field("timestamp").type),
                pa.array([0] * count, pa.int32()),
            ],
            schema=SCHEMA,
        )  # fmt: skip
        left = self.rows // PARTITIONS
        while left > 0:
            yield batch.slice(0, left)
            left -= count


def fill(bootstrap: str, topic: str, rows: int, size: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1 << 18})
    value = os.urandom(size)
    for number in range(rows):
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
            producer.flush(60) if number % 100_000 == 0 else None
    assert producer.flush(120) == 0


def cpu_seconds(root: int) -> float:
    """Of a process, all below it, and those of their children that have ended."""
    spent, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        pid = int(path.parent.name)
        parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(spent[pid] for pid in below)


def sources(
    spark: SparkSession, bootstrap: str, topic: str, rows: int, size: int
) -> dict[str, Callable[[], DataFrame]]:
    def of_topic(name: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.read.format(name).options(**options).load()

    found: dict[str, Callable[[], DataFrame]] = {"kafka": lambda: of_topic("kafka")}
    try:
        of_topic("ottla")
        found["ottla"] = lambda: of_topic("ottla")
    except Exception as error:  # Spark's errors have no common class that is public
        print(f"without ottla's source: {str(error).splitlines()[0][:100]}")
    found["ceiling"] = lambda: spark.read.format("ceiling").options(rows=rows, size=size).load()
    return found


def measure(spark: SparkSession, bootstrap: str, rows: int, size: int, rounds: int) -> None:
    topic = f"bench-spark-{size}"
    fill(bootstrap, topic, rows, size)
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    sides = sources(spark, bootstrap, topic, rows, size)
    for side, load in sides.items():
        assert load().count() == rows, side
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, load in sides.items():
            began, spent = time.monotonic(), cpu_seconds(pid)
            load().write.format("noop").mode("overwrite").save()
            if number:  # the first warms up
                found[side].append((time.monotonic() - began, cpu_seconds(pid) - spent))
    for side, runs in found.items():
        seconds = statistics.median(each for each, _ in runs)
        cpu = statistics.median(each for _, each in runs)
        print(
            f"{size:6} B {side:>8}: {rows / seconds / 1e6:6.2f} M rows/s {rows * size / seconds / 1e6:7.0f} MB/s "
            f"{cpu / rows * 1e6:6.2f} CPU s per M rows, {min(runs)[0]:.2f} to {max(runs)[0]:.2f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 bytes; a quarter of 1000")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, sorted(JARS.glob("*.jar")))))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Ceiling)
    with Broker() as broker:
        for size, rows in ((100, options.rows), (1000, options.rows // 4)):
            measure(spark, broker.bootstrap, rows, size, options.rounds)
    spark.stop()


if __name__ == "__main__":
    main()
