"""Lake: a topic into a Delta, Parquet or Iceberg table, exactly once, by date, small files compacted.

Values of `input` are JSON with `schema` (DDL of Spark), or `format=avro` with its schema; with a schema registry they
are what the topic's subject says, and no schema is given. A row is a record: the value's columns, and `_key`,
`_partition`, `_offset`, `_timestamp`, and `date`, by which the table is partitioned: of the expression `at`, or of the
record's timestamp where that is null. Columns that a new schema has are added to the table; rows that are older have
null there.

`kind` is delta (`table` is a directory; `delta` is the Maven coordinate of its jars, empty where Spark has them),
parquet (a directory, on a file system with an atomic rename: not S3) or iceberg (`table` is NAMESPACE.NAME in `catalog`
of PyIceberg's configuration, or of `properties`: uri=sqlite:////lake/catalog.db,warehouse=file:///lake).

With each `compact_every`th batch files that are much smaller than `target_mb` become larger ones, of those dates that
have several of them; a directory of Parquet files is left as it is for its newest date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.pipelines.runner import Job, PipelineError, Setting
from ottla.pipelines.runner.job import query_id

SETTINGS = (
    Setting("input", "events", "topic to keep"),
    Setting("format", "json", "format of its values: json, avro or binary"),
    Setting("schema", "", "schema of its values: DDL for json, Avro's JSON for avro"),
    Setting("kind", "delta", "kind of the table: delta, parquet or iceberg"),
    Setting("table", "", "the table's directory, or NAMESPACE.NAME in an Iceberg catalog"),
    Setting("at", "timestamp", "event time of a record: a SQL expression over its columns"),
    Setting("compact_every", 50, "batches from one compaction to the next; 0: none"),
    Setting("target_mb", 128, "target size of a file in MiB; larger ones are not compacted"),
    Setting("catalog", "default", "Iceberg's"),
    Setting("properties", "", "properties of the Iceberg catalog: uri=...,warehouse=..."),
    Setting("delta", "io.delta:delta-spark_4.2_2.13:4.4.0", "Maven coordinate of the Delta JARs to fetch"),
)
PLACE = ("key", "partition", "offset", "timestamp")


class Table(Protocol):
    """Where batches go. Both may be called again for the same batch, after a failure anywhere within."""

    def write(self, rows: DataFrame, query: str, number: int) -> None: ...
    def compact(self, rows: DataFrame, query: str, number: int) -> None:
        """`rows` as of `write`, for their schema and session."""


def build(job: Job) -> None:
    table = table_of(job)
    every = job["compact_every"]

    def write(batch: DataFrame, number: int) -> None:
        query = query_id(batch)
        table.write(batch, query, number)
        if every and number % every == every - 1:
            table.compact(batch, query, number)

    job.batches("rows", rows_of(job), write)


def rows_of(job: Job) -> DataFrame:
    """The value's columns first. Raises PipelineError for settings that do not fit together."""
    schema, format = job["schema"] or None, job["format"]
    if schema is None and format != "binary" and job.registry is None:
        raise PipelineError(
            "schema: give the schema of the values (DDL for json, Avro's JSON for avro), or set format=binary, or "
            "--registry"
        )
    records = job.read("input", schema, format=format, key_format="binary" if format == "binary" else "string")
    names = ["value"] if format == "binary" else records.select("value.*").columns
    if taken := sorted({"date", *(f"_{name}" for name in PLACE)}.intersection(names)):
        raise PipelineError(f"schema: the table has a column {taken[0]} of its own")
    values = [F.col("value") if format == "binary" else F.col(f"value.`{name}`").alias(name) for name in names]
    place = [F.col(name).alias(f"_{name}") for name in PLACE]
    found = records.select(*values, *place, *[F.col(name) for name in PLACE if name not in names])
    date = F.coalesce(F.to_date(F.expr(job["at"])), F.to_date("_timestamp")).alias("date")
    return found.select(*[F.col(f"`{name}`") for name in names], *[f"_{name}" for name in PLACE], date)


def table_of(job: Job) -> Table:
    if not job["table"]:
        raise PipelineError("table: give a directory, or NAMESPACE.NAME in an Iceberg catalog")
    target_bytes = job["target_mb"] << 20
    if job["kind"] == "delta":
        from ottla.pipelines.lake_delta import Delta

        return Delta(job.spark, job["table"], target_bytes)
    if job["kind"] == "parquet":
        from ottla.pipelines.lake_parquet import Parquet

        return Parquet(job["table"], target_bytes)
    if job["kind"] == "iceberg":
        from ottla.pipelines.lake_iceberg import Iceberg, open_catalog

        return Iceberg(open_catalog(job["catalog"], job["properties"]), job["table"], target_bytes)
    raise PipelineError(f"kind: expected delta, parquet or iceberg, got {job['kind']!r}")


def spark_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings for the Spark session: Delta has parts that cannot be added later."""
    if settings["kind"] != "delta":
        return {}
    jars = {"spark.jars.packages": settings["delta"]} if settings["delta"] else {}
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "4",
        **jars,
    }
