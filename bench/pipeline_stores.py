"""What pipelines write to and read from beside topics, for `bench.pipelines`: tables of a lake, and a PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from bench.pipeline_loads import Ran

ROW = "id BIGINT, customer STRING, amount DOUBLE, note STRING, at TIMESTAMP"
COLUMNS = ("id", "customer", "amount", "note", "at")
ROWS_TABLE = (
    "CREATE TABLE rows (id bigint PRIMARY KEY, name text, amount double precision,"
    " changed_in xid8 DEFAULT pg_current_xact_id());"
    " INSERT INTO rows SELECT id, 'customer-' || id % 10000, id / 4.0 FROM generate_series(0, {events} - 1) AS id;"
    " CREATE INDEX ON rows (changed_in); ANALYZE rows"
)

Store = Callable[[str, int], AbstractContextManager[dict[str, Any]]]


def exactly(found: DataFrame, expected: DataFrame) -> None:
    """The same rows, each as often: by their number and sums of their hashes. Raises AssertionError."""
    sums = [_sums(frame) for frame in (found, expected)]
    if sums[0] == sums[1]:
        return
    more, less = (one.exceptAll(other).limit(3).collect() for one, other in ((found, expected), (expected, found)))
    raise AssertionError(f"{sums[0]['rows']} rows of {sums[1]['rows']}; too many: {more}; missing: {less}")


def _sums(frame: DataFrame) -> Row:
    row = f.xxhash64(*frame.columns)
    found = frame.agg(
        f.count("*").alias("rows"), f.sum(row.cast("decimal(38)")).alias("sum"), f.bit_xor(row).alias("xor")
    ).first()
    assert found is not None
    return found


@contextmanager
def log_table(directory: str, events: int) -> Iterator[dict[str, Any]]:
    yield {"table": f"{directory}/lines"}


def lake(kind: str) -> Store:
    @contextmanager
    def table(directory: str, events: int) -> Iterator[dict[str, Any]]:
        properties = f"uri=sqlite:///{directory}/catalog.db,warehouse=file://{directory}/warehouse"
        if kind == "iceberg":
            yield {"table": "lake.rows", "properties": properties}
        else:
            yield {"table": f"{directory}/table"}

    return table


def check_lake(ran: Ran) -> None:
    table, kind = str(ran.settings["table"]), ran.settings["kind"]
    if kind == "iceberg":
        from ottla.pipelines.lake_iceberg import open_catalog

        scan = open_catalog("default", str(ran.settings["properties"])).load_table(table).scan()
        read = ran.spark.read.parquet(*[each.file.file_path for each in scan.plan_files()])
    else:
        read = ran.spark.read.format(kind).load(table)
    places = [f.col(f"_{name}").alias(name) for name in ("partition", "offset")]
    found = read.select(*COLUMNS, *places)
    exactly(found, ran.records("input", ROW).select("value.*", "partition", "offset"))


@contextmanager
def database(directory: str, events: int) -> Iterator[dict[str, Any]]:
    """A PostgreSQL with Debian's settings, which write each commit to the disk before it is acknowledged."""
    from peers.postgres import Postgres

    with Postgres() as server:
        yield {"database": server.url}


@contextmanager
def table_of_rows(directory: str, events: int) -> Iterator[dict[str, Any]]:
    with database(directory, events) as settings:
        import psycopg

        with psycopg.connect(settings["database"], autocommit=True) as connection:
            connection.execute(ROWS_TABLE.format(events=events).encode())
        yield settings


def check_rows_in(ran: Ran) -> None:
    topic = f"{ran.settings['prefix']}{ran.settings['tables']}"
    read = ran.of_topic(topic, "id BIGINT, name STRING, amount DOUBLE").select(f.col("key").cast("string"), "value.*")
    ids = ran.spark.range(ran.events)
    name = f.concat(f.lit("customer-"), (f.col("id") % 10000).cast("string")).alias("name")
    exactly(read, ids.select(f.col("id").cast("string").alias("key"), "id", name, (f.col("id") / 4).alias("amount")))


def check_upserts(ran: Ran) -> None:
    import psycopg

    rows = ran.records("input", str(ran.settings["columns"])).groupBy("value.id")
    newest = rows.agg(f.max_by("value", "offset").alias("value")).select("value.*")
    with psycopg.connect(str(ran.settings["database"])) as connection:
        found = connection.execute("SELECT id, name, total FROM totals ORDER BY id").fetchall()
    assert found == sorted(tuple(row) for row in newest.collect()), f"{len(found)} rows"
