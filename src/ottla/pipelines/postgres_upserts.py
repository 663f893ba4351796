"""Records into a PostgreSQL table, exactly once: the newest record of a key is its row, one without a value deletes it.

Tasks COPY what they have into a table beside it. Then one transaction merges that, and moves the positions in
`ottla_positions` (a topic's partition, and the first offset that is not merged) in the same breath: what is below them
does nothing, so that a batch may come again, in whole or in part, from this driver or from one that was thought dead.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Jsonb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.pipelines.postgres_rows import PostgresError, connect

POSITIONS: Final = "ottla_positions"
_PLACE: Final = ("ottla_partition", "ottla_offset", "ottla_deleted")
_TYPES: Final[dict[type[DataType], str]] = {
    BooleanType: "boolean", ByteType: "smallint", ShortType: "smallint", IntegerType: "integer", LongType: "bigint",
    FloatType: "real", DoubleType: "double precision", StringType: "text", BinaryType: "bytea", DateType: "date",
    TimestampType: "timestamptz", TimestampNTZType: "timestamp",
}  # fmt: skip


def type_of(type: DataType) -> str:
    """PostgreSQL's for one of Spark's: arrays of simple types are arrays, what is nested otherwise is jsonb."""
    if isinstance(type, DecimalType):
        return f"numeric({type.precision},{type.scale})"
    if isinstance(type, ArrayType) and (element := type_of(type.elementType)) not in ("jsonb", ""):
        return element if element.endswith("[]") else f"{element}[]"
    return next((name for kind, name in _TYPES.items() if isinstance(type, kind)), "jsonb")


@dataclass(frozen=True)
class Copy:
    """A task's part: its rows into the staging table, in a transaction of its own."""

    conninfo: str
    staging: str
    nested: frozenset[int]
    """Numbers of the columns that are jsonb."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: the attempt's name, and how many rows it has copied and how many it has left out."""
        attempt, copied, bad = uuid.uuid4().hex, 0, 0
        connection: psycopg.Connection[Any] | None = None
        try:
            for batch in batches:
                rows = list(zip(*[column.to_pylist() for column in batch.columns], strict=True))
                good = [row[:-1] for row in rows if row[-1] is None]
                bad += len(rows) - len(good)
                if not good:
                    continue
                if connection is None:
                    connection = connect(self.conninfo)
                    connection.execute("BEGIN")
                copied += self._copy(connection, attempt, good)
            if connection is not None:
                connection.execute("COMMIT")
        finally:
            if connection is not None:
                connection.close()
        yield pa.RecordBatch.from_pydict({"attempt": [attempt], "copied": [copied], "bad": [bad]})

    def _copy(self, connection: psycopg.Connection[Any], attempt: str, rows: list[tuple[Any, ...]]) -> int:
        query = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(self.staging))
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for row in rows:
                values = [
                    Jsonb(_plain(value)) if number in self.nested and value is not None else value
                    for number, value in enumerate(row)
                ]
                copy.write_row([*values, attempt])
        return len(rows)


def _plain(value: Any) -> Any:
    """For JSON."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class Upserts:
    """Into one table, from one topic. `name` tells pipelines apart that write to the same database."""

    def __init__(self, conninfo: str, table: str, schema: StructType, keys: list[str], name: str, topic: str) -> None:
        """`topic` with its id: another one of the same name begins from 0. Raises PostgresError, psycopg.Error."""
        if unknown := [key for key in keys if key not in schema.names]:
            raise PostgresError(f"keys: {unknown[0]} is not one of the columns {', '.join(schema.names)}")
        if not keys:
            raise PostgresError("keys: name the columns of the primary key")
        self.conninfo, self.schema, self.keys, self.name, self.topic = conninfo, schema, keys, name, topic
        self.table = sql.Identifier(*table.split("."))
        self.types = [type_of(field.dataType) for field in schema]
        self.prefix = f"ottla_staging_{hashlib.sha256(f'{name} {table} {topic}'.encode()).hexdigest()[:16]}_"
        self._create()

    def _create(self) -> None:
        """Create what is missing; an existing table is not changed."""
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind))
            for column, kind in zip(self.schema.names, self.types, strict=True)
        ]
        with connect(self.conninfo) as connection:
            connection.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
                    self.table, sql.SQL(", ").join(columns), _names(self.keys)
                )
            )
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (pipeline text, topic text, partition int, next_offset bigint NOT"
                    " NULL, batch bigint NOT NULL, PRIMARY KEY (pipeline, topic, partition))"
                ).format(sql.Identifier(POSITIONS))
            )

    def rows(self, records: DataFrame) -> DataFrame:
        """Where they are from, whether they delete, the columns, and why a record cannot be taken."""
        columns = [self._key(name) if name in self.keys else F.col(f"value.`{name}`") for name in self.schema.names]
        named = [column.alias(name) for column, name in zip(columns, self.schema.names, strict=True)]
        place = (F.col("partition"), F.col("offset"), F.col("value").isNull())
        found = records.select(*[one.alias(name) for one, name in zip(place, _PLACE, strict=True)], *named)
        reason = F.when(
            F.concat(*[F.col(f"`{key}`").isNull().cast("string") for key in self.keys]).contains("true"),
            F.lit("no key"),
        )
        for field, kind in zip(self.schema, self.types, strict=True):
            if kind in ("text", "text[]", "jsonb"):
                column = F.col(f"`{field.name}`")
                text = column if kind == "text" else F.to_json(F.struct(column))
                zero = "\0" if kind == "text" else "\\u0000"
                reason = reason.when(F.coalesce(text.contains(zero), F.lit(False)), F.lit(f"{field.name} has a NUL"))
        return found.withColumn("ottla_bad", reason)

    def _key(self, name: str) -> Column:
        """The key column: of the value, or of the record's key if the value does not have it."""
        kind = self.schema[name].dataType
        if len(self.keys) == 1:
            given = F.col("key").try_cast(kind)
        else:
            of_key = StructType([self.schema[key] for key in self.keys])
            given = F.from_json("key", of_key)[name]
        return F.coalesce(F.col(f"value.`{name}`"), given)

    def merge(self, records: DataFrame, number: int) -> int:
        """One batch; returns how many records could not be taken. Raises psycopg.Error, PostgresError: it can be done
        again then."""
        staging = f"{self.prefix}{number}_{uuid.uuid4().hex[:8]}"
        self._stage(staging)
        nested = frozenset(at for at, kind in enumerate(self.types, len(_PLACE)) if kind == "jsonb")
        copy = Copy(self.conninfo, staging, nested)
        told = self.rows(records).mapInArrow(copy, "attempt STRING, copied LONG, bad LONG").collect()
        attempts = {row.attempt: row.copied for row in told if row.copied}
        with connect(self.conninfo) as connection, connection.transaction():
            if attempts:
                self._merge(connection, sql.Identifier(staging), attempts, number)
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(staging)))
        return sum(row.bad for row in told)

    def _stage(self, staging: str) -> None:
        with connect(self.conninfo) as connection:
            left = connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s)"
                " AND pg_table_is_visible(oid)",
                (self.prefix,),
            ).fetchall()
            for (name,) in left:  # of drivers that were killed
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))
            connection.execute(
                sql.SQL(
                    "CREATE UNLOGGED TABLE {} AS SELECT 0::int AS ottla_partition, 0::bigint AS ottla_offset, false AS"
                    " ottla_deleted, {}, ''::text AS ottla_attempt FROM {} WITH NO DATA"
                ).format(sql.Identifier(staging), _names(self.schema.names), self.table)
            )

    def _merge(
        self, connection: psycopg.Connection[Any], staging: sql.Identifier, attempts: dict[str, int], number: int
    ) -> None:
        parts = {
            "staging": staging,
            "table": self.table,
            "keys": _names(self.keys),
            "columns": _names(self.schema.names),
            "positions": sql.Identifier(POSITIONS),
            "set": self._set(),
            "same": sql.SQL(" AND ").join(
                sql.SQL("t.{} = n.{}").format(sql.Identifier(key), sql.Identifier(key)) for key in self.keys
            ),
        }
        parts["newest"] = sql.SQL(
            "(SELECT DISTINCT ON ({keys}) * FROM {staging} ORDER BY {keys}, ottla_offset DESC) AS n"
        ).format(**parts)
        # One driver after the other, each sees the positions of the one before it.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{self.name} {self.topic}",))
        connection.execute(
            sql.SQL("DELETE FROM {staging} WHERE ottla_attempt <> ALL (%s)").format(**parts), (list(attempts),)
        )
        # A table that is not logged is empty after a crash of the server.
        found = connection.execute(sql.SQL("SELECT count(*) FROM {staging}").format(**parts)).fetchone()
        if found != (sum(attempts.values()),):
            raise PostgresError(f"{found} of {sum(attempts.values())} rows remain of the copied ones")
        connection.execute(
            sql.SQL(
                "DELETE FROM {staging} USING {positions} AS p WHERE p.pipeline = %s AND p.topic = %s"
                " AND p.partition = ottla_partition AND ottla_offset < p.next_offset"
            ).format(**parts),
            (self.name, self.topic),
        )
        connection.execute(
            sql.SQL("DELETE FROM {table} AS t USING {newest} WHERE n.ottla_deleted AND {same}").format(**parts)
        )
        connection.execute(
            sql.SQL(
                "INSERT INTO {table} AS t ({columns}) SELECT {columns} FROM {newest} WHERE NOT n.ottla_deleted"
                " ON CONFLICT ({keys}) DO {set}"
            ).format(**parts)
        )
        connection.execute(
            sql.SQL(
                "INSERT INTO {positions} SELECT %s, %s, ottla_partition, max(ottla_offset) + 1, %s FROM {staging}"
                " GROUP BY ottla_partition ON CONFLICT (pipeline, topic, partition)"
                " DO UPDATE SET next_offset = EXCLUDED.next_offset, batch = EXCLUDED.batch"
            ).format(**parts),
            (self.name, self.topic, number),
        )

    def _set(self) -> sql.Composable:
        others = [name for name in self.schema.names if name not in self.keys]
        if not others:
            return sql.SQL("NOTHING")
        return sql.SQL("UPDATE SET {}").format(
            sql.SQL(", ").join(
                sql.SQL("{} = EXCLUDED.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in others
            )
        )


def _names(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))
