"""A job that loads the classes that tests of pipelines need: whatever it loads is kept by `python -m peers.spark`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class _Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "value string"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def read(self, partition: Any) -> Iterator[tuple[str]]:
        return ((f'{{"n": {number}}}',) for number in range(10))


class _Counts(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        count = sum(map(len, rows)) + (self._count.get()[0] if self._count.exists() else 0)
        self._count.update((count,))
        yield pd.DataFrame({"k": [key[0]], "n": [count]})

    def close(self) -> None:
        pass


def _batch(spark: SparkSession) -> None:
    spark.dataSource.register(_Numbers)
    numbers = spark.read.format("numbers").load()
    parsed = numbers.select(f.from_json("value", "n long").alias("v")).select("v.n", f.col("v.n").cast("string"))
    assert parsed.distinct().count() == 10
    left = spark.range(100).select("id", (f.col("id") % 7).alias("k"), f.current_timestamp().alias("at"))
    counts = left.groupBy("k").agg(f.count("*").alias("n"), f.max("at"), f.percentile_approx("id", 0.5))
    assert left.join(counts, "k").orderBy("id").limit(5).toPandas().shape[0] == 5


def _streams(spark: SparkSession, work: Path) -> None:
    spark.range(1000).select("id", (f.col("id") % 7).alias("k")).write.parquet(str(work / "in"))
    rows = spark.readStream.schema("id long, k long").parquet(str(work / "in"))
    timed = rows.withColumn("at", f.timestamp_seconds("id"))
    windows = timed.withWatermark("at", "1 second").groupBy(f.window("at", "10 seconds"), "k").count()
    states = rows.groupBy("k").transformWithStateInPandas(_Counts(), "k long, n long", "update", "none")
    joined = (
        timed.withWatermark("at", "1 second")
        .alias("a")
        .join(timed.withWatermark("at", "1 second").alias("b"), f.expr("a.id = b.id AND a.at = b.at"), "leftOuter")
    )
    for number, (frame, mode) in enumerate([(windows, "append"), (states, "update"), (joined, "append")]):
        query = (
            frame.writeStream.outputMode(mode)
            .option("checkpointLocation", str(work / f"checkpoint-{number}"))
            .trigger(availableNow=True)
            .foreachBatch(_written)
            .start()
        )
        query.awaitTermination()


def _written(frame: DataFrame, number: int) -> None:
    frame.write.mode("append").format("noop").save()


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as directory:
        _batch(spark)
        _streams(spark, Path(directory))
    spark.stop()


if __name__ == "__main__":
    main()
