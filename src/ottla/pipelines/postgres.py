"""Data integration: rows of PostgreSQL tables into topics, and records of a topic into a table, exactly once.

In: rows of `tables` go to topics PREFIX.TABLE as JSON, keyed by primary key; first all of them, as they are at one
moment, then those that have changed since the last look: each version that is the newest when it is looked at, once,
also of transactions that commit late. A table needs a primary key and nothing else, but is read whole at each look.
With `changed`, a column that has an index, only what has changed is read: an xid8 that a trigger sets to
pg_current_xact_id(), or a timestamptz that each change sets. `deleted` is a column that marks a row as deleted (a
boolean, or any other that is not null then): its record has no value. Rows that a DELETE took are not seen.

Out: records of `input` are rows of `into`, JSON with `columns` (DDL of Spark; the table is made of them where it is
missing): the newest record of a key is its row, one without a value deletes the row. Keys are the columns `keys` of the
value; of a record without a value the record's key, as In writes it.

`database` is a URL or conninfo of libpq, whose environment counts (PGPASSWORD, PGSERVICE, ...), on executors too.
"""

from __future__ import annotations

from contextlib import closing
from typing import cast

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipelines.postgres_rows import Options, PostgresError, PostgresSource, check
from ottla.pipelines.postgres_upserts import Upserts
from ottla.pipelines.runner import Job, PipelineError, Setting

SETTINGS = (
    Setting("database", "postgresql://127.0.0.1:5432/postgres", "URL of the database"),
    Setting("tables", "", "tables to read: a,schema.b"),
    Setting("prefix", "postgres.", "prefix of topic names, before the table's name"),
    Setting("changed", "", "column to find changes by: xid8 or timestamptz, with an index"),
    Setting("deleted", "", "column that marks a row as deleted"),
    Setting("look", 1.0, "minimum seconds between reads of the tables"),
    Setting("tasks", 4, "connections for the first read of a large table"),
    Setting("input", "upserts", "topic to write into a table"),
    Setting("into", "", "the table to write to"),
    Setting("columns", "", "the table's columns, as id BIGINT, name STRING, price DECIMAL(10,2)"),
    Setting("keys", "id", "the table's primary key: columns, a,b"),
)


def build(job: Job) -> None:
    if not job["tables"] and not job["into"]:
        raise PipelineError("postgres needs tables to read (tables=a,b), or a table to write (into=a), or both")
    try:
        if job["tables"]:
            rows_in(job)
        if job["into"]:
            upserts_out(job)
    except PostgresError as error:
        raise PipelineError(str(error)) from None
    except psycopg.Error as error:
        raise PipelineError(f"database: {error}") from None


def rows_in(job: Job) -> None:
    chosen = {
        "conninfo": job["database"],
        "tables": job["tables"],
        "prefix": job["prefix"],
        "changed": job["changed"],
        "deleted": job["deleted"],
        "every_s": str(job["look"]),
        "tasks": str(job["tasks"]),
    }
    options = Options.of(chosen)
    check(options)
    for table in options.tables:
        job.ensure_topic(options.prefix + table)
    job.spark.dataSource.register(PostgresSource)
    rows = job.spark.readStream.format(PostgresSource.name()).options(**chosen).load()
    # The first read may take long: as long as a broker lets a transaction be open by default.
    job.write_to("rows", rows, kafka_transaction_timeout_ms="900000")


def upserts_out(job: Job) -> None:
    if not job["columns"]:
        raise PipelineError("columns: give the columns of the values, as id BIGINT, name STRING, price DECIMAL(10,2)")
    records = job.read("input", job["columns"])
    schema = cast("StructType", StructType.fromDDL(job["columns"]))  # Spark runs by now, as this needs
    keys = [name.strip() for name in job["keys"].split(",") if name.strip()]
    topic = job.topic("input")
    upserts = Upserts(job["database"], job["into"], schema, keys, job.pipeline.name, f"{topic} {_topic_id(job, topic)}")

    def merge(batch: DataFrame, number: int) -> None:
        if upserts.merge(batch, number):
            _bury(job, upserts, batch)

    job.batches("upserts", records, merge)


def _bury(job: Job, upserts: Upserts, batch: DataFrame) -> None:
    """Records that no table can take, with headers as all dead letters have; at least once, as those."""
    bad = upserts.rows(batch).where("ottla_bad is not null").select("ottla_partition", "ottla_offset", "ottla_bad")
    found = bad.join(
        batch, (F.col("ottla_partition") == F.col("partition")) & (F.col("ottla_offset") == F.col("offset"))
    )
    says = {"topic": "topic", "partition": "partition", "offset": "offset", "exception.message": "ottla_bad"}
    headers = [
        F.struct(
            F.lit(f"__connect.errors.{name}").alias("key"), F.col(column).cast("string").cast("binary").alias("value")
        )
        for name, column in says.items()
    ]
    letters = found.select("key", F.to_json("value").alias("value"), F.array(*headers).alias("headers"))
    chosen = {**job.client, "topic": job.dead_letter_topic}
    letters.write.format("ottla").options(**chosen).mode("append").save()


def _topic_id(job: Job, topic: str) -> str:
    with closing(job.topics()) as topics:
        return topics.id(topic)
