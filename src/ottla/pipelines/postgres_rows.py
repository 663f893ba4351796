"""Rows of PostgreSQL tables as a stream: each version of a row that is the newest when it is looked at, once.

A position is a transaction id (xid8): all that transactions below it have written is read. It is the lowest one that is
still running when it is taken (`pg_snapshot_xmin`), so that a transaction which commits late is not missed, whatever
its rows say about when they were changed; and a subtransaction's id is above that of its transaction, so that those are
not either. Rows carry the id of their last change in the system column `xmin`, or in a column of type xid8.

https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, cast

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

SCHEMA: Final = "topic STRING, key STRING, value STRING"
_ARROW: Final = pa.schema([("topic", pa.string()), ("key", pa.string()), ("value", pa.string())])
_ROWS: Final = 5000
"""Rows of an Arrow batch and of a fetch."""
_BLOCKS_MIN: Final = 1024
"""Minimum blocks of a task (8 MiB): fewer are not worth a connection."""
_SLACK: Final = "5 minutes"
"""How far the clocks that set a timestamp column may be behind the server's."""
_NEWEST: Final = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint)"
_XID: Final = f"""CASE WHEN t.xmin::text::bigint < 3 THEN 0
  ELSE {_NEWEST} - (({_NEWEST} - t.xmin::text::bigint) & 4294967295) END"""
"""The whole id of the transaction that `xmin` has 32 bits of; below 3 are those that are older than any."""


class PostgresSource(DataSource):
    """`format("ottla-postgres")`: columns topic, key (the primary key) and value (the row as JSON, null for a row whose
    soft-delete column says that it is deleted)."""

    @classmethod
    def name(cls) -> str:
        return "ottla-postgres"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return Reader(Options.of(self.options))


@dataclass(frozen=True)
class Options:
    """Picklable: it travels to the tasks."""

    conninfo: str
    tables: tuple[str, ...]
    prefix: str = ""
    """Prefix of topics."""
    changed: str = ""
    """A column of type xid8 or a timestamp; `xmin` is looked at without, and with a timestamp too."""
    deleted: str = ""
    every_s: float = 1.0
    tasks: int = 4
    """Tasks for the first read of a large table."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        tables = tuple(name.strip() for name in given["tables"].split(",") if name.strip())
        return cls(
            given["conninfo"],
            tables,
            given.get("prefix", ""),
            given.get("changed", ""),
            given.get("deleted", ""),
            float(given.get("every_s", 1.0)),
            int(given.get("tasks", 4)),
        )


class PostgresError(Exception):
    """The database cannot be read as requested; the text says what to change."""


def connect(conninfo: str) -> psycopg.Connection[Any]:
    """Raises psycopg.OperationalError."""
    # Rows are text by the time that they are here: let it be the same text wherever this runs.
    return psycopg.connect(
        conninfo,
        autocommit=True,
        application_name="ottla",
        connect_timeout=10,
        options="-c TimeZone=UTC -c DateStyle=ISO -c bytea_output=hex -c idle_in_transaction_session_timeout=0",
    )


@dataclass
class Part(InputPartition):
    """The part of the data that a task reads."""

    topic: str
    query: str
    snapshot: str | None

    def __init__(self, topic: str, query: str, snapshot: str | None) -> None:
        super().__init__(None)
        self.topic, self.query, self.snapshot = topic, query, snapshot


@dataclass
class Held:
    """A transaction that stays open while a batch is read, so that its tasks see the tables at one moment (all of them,
    and rows that change all the time as well) and in one place (nothing may rewrite a table that is locked)."""

    connection: psycopg.Connection[Any]
    snapshot: str
    position: dict[str, Any]


@dataclass
class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark keeps one instance in a process that plans; tasks have copies."""

    options: Options
    held: Held | None = None
    target: dict[str, Any] | None = None
    looked_at: float = field(default=float("-inf"))

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def initialOffset(self) -> dict[str, Any]:
        return {"xid": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._look({"xid": 0})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self.target is not None:
            _check(start, self.target)
            return self.target if self.target["xid"] > start["xid"] else start
        if time.monotonic() - self.looked_at < self.options.every_s:
            return start
        return self._look(start)

    def _look(self, start: dict[str, Any]) -> dict[str, Any]:
        """The position up to which all is there; `start` when that is the same. Raises PostgresError."""
        self.stop()
        connection = connect(self.options.conninfo)
        try:
            system, is_copy = _one(
                connection, "SELECT system_identifier::text, pg_is_in_recovery() FROM pg_control_system()"
            )
            if is_copy:
                raise PostgresError(
                    "this server is a standby, which does not know running transactions: read from the primary"
                )
            # First this, then the snapshot: what runs then has either been seen here, or began later.
            since = self._oldest(connection)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            (xid,) = _one(connection, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
            position = {"xid": xid, "system": system, "since": since}
            _check(start, position)
            if xid == start["xid"]:
                connection.close()
                return start
            for table in self.options.tables:
                connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(_name(connection, table)))
            (snapshot,) = _one(connection, "SELECT pg_export_snapshot()")
            self.held = Held(connection, snapshot, position)
        except BaseException:
            connection.close()
            raise
        self.looked_at = time.monotonic()
        return position

    def _oldest(self, connection: psycopg.Connection[Any]) -> str | None:
        """When the oldest transaction that runs began; None: it is not known, or not needed."""
        if not self.options.changed:
            return None
        (may,) = _one(connection, "SELECT pg_has_role('pg_read_all_stats', 'USAGE')")
        if not may:
            raise PostgresError(
                f"changed={self.options.changed} needs the start times of transactions: GRANT pg_read_all_stats TO "
                f"CURRENT_USER, or omit it"
            )
        (since,) = _one(
            connection,
            "SELECT least(clock_timestamp(), min(xact_start))::text FROM pg_stat_activity"
            " WHERE datname = current_database()",
        )
        # These do not say when they began.
        (prepared,) = _one(connection, "SELECT count(*) FROM pg_prepared_xacts")
        return None if prepared else str(since)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start["xid"] == end["xid"]:
            return []
        held = self.held if self.held is not None and self.held.position == end else None
        if held is not None:
            return list(self._parts(held.connection, start, end, held.snapshot))
        # A batch of a run before this one: what has changed since belongs to a later batch.
        with connect(self.options.conninfo) as connection:
            return list(self._parts(connection, start, end, None))

    def _parts(
        self, connection: psycopg.Connection[Any], start: dict[str, Any], end: dict[str, Any], snapshot: str | None
    ) -> Iterator[Part]:
        for table in self.options.tables:
            query = _query(connection, table, self.options, start, end)
            topic = self.options.prefix + table
            tasks, blocks = 1, 0
            if snapshot is not None and start["xid"] == 0:
                blocks = _blocks(connection, table)
                tasks = max(1, min(self.options.tasks, blocks // _BLOCKS_MIN))
            if tasks == 1:
                yield Part(topic, query.as_string(connection), snapshot)
                continue
            bounds = [blocks * number // tasks for number in range(tasks)]
            for number, first in enumerate(bounds):
                where = sql.SQL(" AND ctid >= {}::tid").format(f"({first},0)")
                if number + 1 < tasks:  # the last one to the end, wherever that is by now
                    where += sql.SQL(" AND ctid < {}::tid").format(f"({bounds[number + 1]},0)")
                yield Part(topic, (query + where).as_string(connection), snapshot)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        with connect(self.options.conninfo) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if partition.snapshot is not None:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(partition.snapshot))
            with connection.cursor("rows") as cursor:
                cursor.execute(partition.query.encode())
                while rows := cursor.fetchmany(_ROWS):
                    keys, values = zip(*rows, strict=True)
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array([partition.topic] * len(rows)),
                            pa.array(keys, pa.string()),
                            pa.array(values, pa.string()),
                        ],
                        schema=_ARROW,
                    )

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the position is in the checkpoint."""

    def stop(self) -> None:
        if self.held is not None:
            self.held.connection.close()
            self.held = None


def check(options: Options) -> None:
    """Check that the tables can be read. Raises PostgresError, psycopg.Error."""
    with connect(options.conninfo) as connection:
        for table in options.tables:
            _query(connection, table, options, {"xid": 0}, {"xid": 0})


def _check(start: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises PostgresError when transaction ids are not those that the position is of."""
    if start.get("system", now["system"]) != now["system"] or start["xid"] > now["xid"]:
        raise PostgresError(
            "this is not the database that was read before, or an older state of it: read it from the beginning, "
            "with another --directory"
        )


def _one(connection: psycopg.Connection[Any], query: LiteralString, *values: Any) -> tuple[Any, ...]:
    found = connection.execute(query, values or None).fetchone()
    assert found is not None
    return cast("tuple[Any, ...]", found)


def _name(connection: psycopg.Connection[Any], table: str) -> sql.Composable:
    """Quoted as it has to be. Raises PostgresError where there is none."""
    try:
        (name,) = _one(connection, "SELECT %s::regclass::oid::regclass::text", table)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.InvalidName):
        raise PostgresError(f"there is no table {table}") from None
    return sql.SQL(name)


def _blocks(connection: psycopg.Connection[Any], table: str) -> int:
    """0 for a table that is made of others, whose blocks have the same numbers."""
    (blocks,) = _one(
        connection,
        "SELECT CASE WHEN relkind = 'r' AND NOT relhassubclass THEN"
        " pg_relation_size(oid) / current_setting('block_size')::int ELSE 0 END FROM pg_class WHERE oid = %s::regclass",
        table,
    )
    return int(blocks)


def _query(
    connection: psycopg.Connection[Any], table: str, options: Options, start: dict[str, Any], end: dict[str, Any]
) -> sql.Composed:
    """Key and value of the rows whose last change is of a transaction from `start` on and before `end`."""
    name = _name(connection, table)
    types = dict(
        connection.execute(
            "SELECT attname, atttypid::regtype::text FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            (table,),
        ).fetchall()
    )
    keys = connection.execute(
        "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)"
        " WHERE indrelid = %s::regclass AND indisprimary ORDER BY array_position(indkey::int2[], attnum)",
        (table,),
    ).fetchall()
    if not keys:
        raise PostgresError(f"table {table} has no primary key, which its records need")
    for column in (options.changed, options.deleted):
        if column and column not in types:
            raise PostgresError(f"table {table} has no column {column}")
    columns = [sql.Identifier("t", key) for (key,) in keys]
    key: sql.Composable = sql.SQL("{}::text").format(columns[0])
    if len(columns) > 1:
        pairs = [sql.SQL("{}, {}").format(key, column) for (key,), column in zip(keys, columns, strict=True)]
        key = sql.SQL("jsonb_build_object({})::text").format(sql.SQL(", ").join(pairs))
    value: sql.Composable = sql.SQL("row_to_json(t)::text")
    if options.deleted:
        gone = sql.SQL("{}" if types[options.deleted] == "boolean" else "{} IS NOT NULL").format(
            sql.Identifier("t", options.deleted)
        )
        value = sql.SQL("CASE WHEN {} THEN NULL ELSE {} END").format(gone, value)
    wheres: list[sql.Composable] = []
    if (kind := types.get(options.changed)) == "xid8":
        by = sql.Identifier("t", options.changed)
        wheres = [
            sql.SQL("{} >= {}::xid8").format(by, str(start["xid"])),
            sql.SQL("{} < {}::xid8").format(by, str(end["xid"])),
        ]
    else:
        xid = sql.SQL(_XID)
        wheres = [sql.SQL("{} >= {} AND {} < {}").format(xid, start["xid"], xid, end["xid"])]
        if kind not in (None, "timestamp with time zone"):
            raise PostgresError(f"column {options.changed} of {table} is {kind}: expected xid8 or timestamptz")
        if kind is not None and start.get("since"):
            by = sql.Identifier("t", options.changed)
            wheres.append(
                sql.SQL("({} IS NULL OR {} >= {}::timestamptz - {}::interval)").format(by, by, start["since"], _SLACK)
            )
    return sql.SQL("SELECT {}, {} FROM {} AS t WHERE {}").format(key, value, name, sql.SQL(" AND ").join(wheres))
