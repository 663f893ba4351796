"""PySpark reads the topics as streams, writes one exactly once, and prints two windowed tables: both ways.

Runs in a process of its own: `python -m demo.spark_job --bootstrap HOST:PORT --work DIR --seconds N`. It needs no jar:
`format("ottla")` is found in the installed package, and speaks to any Kafka.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW = "5 seconds"
HISTORY_WINDOW = "1 hour"
LATENESS = "10 seconds"
INSTALLED = "installed"
HISTORY_ROWS_MAX = 8


def session(work: Path) -> SparkSession:
    """Spark on this machine's cores, quiet, and keeping its files under `work`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["TZ"] = "UTC"  # PySpark turns timestamps into local ones of this process, whatever the session's zone
    time.tzset()
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    spark: SparkSession = (
        builder.master("local[2]")
        .appName("ottla-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(work / "spark-local"))
        .config("spark.sql.warehouse.dir", str(work / "spark-warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    return spark


def topics(spark: SparkSession, bootstrap: str, names: str) -> DataFrame:
    """The records of topics from the beginning on, as an unbounded table."""
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", names)
        .option("startingOffsets", "earliest")
        .option("commit.group", "demo-spark")
        .load()
    )


def write_installed(records: DataFrame, bootstrap: str, work: Path) -> None:
    """What was installed, as JSON by package, into a topic: each once, whatever is killed and started again."""
    from pyspark.sql import functions as f

    event = f.from_json(f.col("value").cast("string"), "package string, versions array<string>, state string")
    installed = records.select(event.alias("e")).where("e.state = 'installed'")
    (
        installed.selectExpr("e.package as key", "struct(e.package, e.versions) as value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", INSTALLED)
        .option("value.format", "json")
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(work / "checkpoint-installed"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    # Read back as columns, by the schema that it was written with.
    rows = (
        records.sparkSession.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", INSTALLED)
        .option("value.format", "json")
        .option("value.schema", "package string, versions array<string>")
        .load()
    )
    distinct = rows.select("value.package").distinct().count()
    print(f"\nwritten to {INSTALLED} exactly once and read back: {rows.count():,} records of {distinct:,} packages")


def live_windows(records: DataFrame) -> DataFrame:
    """What the machine did in each window, out of the metrics."""
    from pyspark.sql import functions as f

    schema = "metric string, name string, value double, unit string"
    metrics = records.select("timestamp", f.from_json(f.col("value").cast("string"), schema).alias("m")).select(
        "timestamp", "m.*"
    )

    def of(metric: str) -> Any:
        return f.when(f.col("metric") == metric, f.col("value"))

    return (
        metrics.withWatermark("timestamp", LATENESS)
        .groupBy(f.window("timestamp", WINDOW))
        .agg(
            f.count("*").alias("records"),
            f.avg(of("cpu")).alias("cpu"),
            f.max(of("memory")).alias("memory"),
            f.max(of("disk_write")).alias("written"),
            f.max_by("name", of("process")).alias("busiest"),
        )
    )


def history_windows(records: DataFrame) -> DataFrame:
    """What was installed and committed in each window, by the times that the events themselves carry."""
    from pyspark.sql import functions as f

    value = f.col("value").cast("string")
    action, state = f.get_json_object(value, "$.action"), f.get_json_object(value, "$.state")
    return records.groupBy(f.window("timestamp", HISTORY_WINDOW)).agg(
        f.count("*").alias("records"),
        f.count(f.when(state == "installed", 1)).alias("installed"),
        f.count(f.when(action.isin("remove", "purge"), 1)).alias("removed"),
        f.count(f.when(f.col("topic") == "commits", 1)).alias("commits"),
        f.sum(f.get_json_object(value, "$.added").cast("long")).alias("lines"),
    )


def _query(table: DataFrame, name: str, work: Path) -> Any:
    return (
        table.writeStream.format("memory")
        .queryName(name)
        .outputMode("complete")
        .option("checkpointLocation", str(work / f"checkpoint-{name}"))
    )


def run(bootstrap: str, work: Path, seconds: float) -> None:
    began = time.monotonic()
    spark = session(work)
    spark.sparkContext.setLogLevel("ERROR")
    print(f"Spark {spark.version} is up after {time.monotonic() - began:.1f} s", flush=True)
    live_table = live_windows(topics(spark, bootstrap, "metrics"))
    live = _query(live_table, "live", work).trigger(processingTime="2 seconds").start()
    history = _query(history_windows(topics(spark, bootstrap, "packages,commits")), "history", work)
    history.trigger(availableNow=True).start().awaitTermination()
    _print_history(spark)
    write_installed(topics(spark, bootstrap, "packages"), bootstrap, work)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and live.exception() is None:
        time.sleep(0.2)
    failure = live.exception()
    if failure is not None:
        raise failure
    # The metrics never end, so neither would waiting for all of them: what the last finished batch saw is shown.
    live.stop()
    _print_live(spark)
    spark.stop()


def _span(window: Any, shape: str) -> str:
    return f"{window.start:{shape}} to {window.end:%H:%M:%S}"


def _print_history(spark: SparkSession) -> None:
    rows = spark.sql(f"select * from history order by window desc limit {HISTORY_ROWS_MAX}").collect()
    print(f"\npackages and commits in windows of {HISTORY_WINDOW} (UTC), the newest {len(rows)}")
    _print(
        ("WINDOW", "RECORDS>", "INSTALLED>", "REMOVED>", "COMMITS>", "LINES ADDED>"),
        [
            (_span(r.window, "%Y-%m-%d %H:%M:%S"), r.records, r.installed, r.removed, r.commits, r.lines)
            for r in reversed(rows)
        ],
    )


def _print_live(spark: SparkSession) -> None:
    rows = spark.sql("select * from live order by window").collect()
    print(f"\nmetrics in windows of {WINDOW} (UTC), live")
    _print(
        ("WINDOW", "RECORDS>", "CPU %>", "MEMORY MiB>", "WRITTEN KiB/s>", "BUSIEST PROCESS"),
        [
            (_span(r.window, "%H:%M:%S"), r.records, _number(r.cpu), _number(r.memory), _number(r.written), r.busiest)
            for r in rows
        ],
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _print(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    from ottla.cli.output import print_table

    print_table(columns, rows, indent=2)
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=15)
    arguments = parser.parse_args()
    run(arguments.bootstrap, arguments.work, arguments.seconds)
