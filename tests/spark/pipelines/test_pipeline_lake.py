"""A topic into Delta, Parquet and Iceberg tables: every record once, whatever fails between the table and Spark."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.runner import Options, Run, load
from tests.spark.pipelines.pipeline_process import Command, set_
from tests.spark.pipelines.pipelines import feed, names, run_once

pytest.importorskip("pyiceberg", reason="Spark is not set up: no pyiceberg here")
pytest.importorskip("delta", reason="Spark is not set up: no delta here")
from pyarrow import dataset
from pyiceberg.table import Transaction

from ottla.pipelines.lake_delta import Delta
from ottla.pipelines.lake_files import Files
from ottla.pipelines.lake_iceberg import Iceberg, open_catalog
from ottla.pipelines.lake_parquet import Parquet

DAYS = ("2026-11-23", "2026-11-24", "2026-11-25")
SCHEMA = "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>"
Rows = list[tuple[int, str, int | None]]


def events(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": number, "at": f"{DAYS[number % 3]}T10:00:00Z", "tags": ["x"], **more} for number in range(first, last)
    ]


def expected(first: int, last: int, size: int | None = None) -> Rows:
    return [(number, DAYS[number % 3], size) for number in range(first, last)]


class Table:
    """A table of one kind, as a reader of that kind sees it."""

    def __init__(self, kind: str, spark: Any, directory: Path) -> None:
        self.kind, self.spark = kind, spark
        self.path = str(directory / "table") if kind != "iceberg" else "lake.events"
        catalog = f"uri=sqlite:///{directory}/catalog.db,warehouse=file://{directory}/warehouse"
        self.settings = {
            "kind": kind,
            "table": self.path,
            "properties": catalog if kind == "iceberg" else "",
            "at": "at",
            "delta": "",
        }

    def rows(self) -> Rows:
        """Id, date and size."""
        if self.kind == "iceberg":
            found = self._iceberg().scan().to_arrow().to_pylist()
            return sorted((row["id"], str(row["date"]), row.get("size")) for row in found)
        if self.kind == "delta":
            read = self.spark.read.format("delta").load(self.path)
        else:
            read = self.spark.read.option("mergeSchema", "true").parquet(self.path)
        sizes = "size" if "size" in read.columns else "cast(null as int) as size"
        return sorted(tuple(row) for row in read.selectExpr("id", "cast(date as string)", sizes).collect())

    def files(self) -> int:
        """How many the newest state of the table is made of."""
        if self.kind == "iceberg":
            return len(list(self._iceberg().scan().plan_files()))
        if self.kind == "delta":
            return len(self.spark.read.format("delta").load(self.path).inputFiles())
        return len(list(Path(self.path).glob("date=*/*.parquet")))

    def _iceberg(self) -> Any:
        return open_catalog("default", self.settings["properties"]).load_table(self.path)


@pytest.mark.usefixtures("delta")
@pytest.mark.parametrize("kind", ["delta", "parquet", "iceberg"])
def test_every_record_once(
    spark: Any, bootstrap: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(kind, spark, tmp_path)
    settings: dict[str, Any] = {**names("input"), **table.settings, "schema": SCHEMA, "compact_every": 0}
    feed(bootstrap, settings["input"], [*events(0, 30), b"not json"])
    with monkeypatch.context() as patch:
        # The table has the batch, Spark does not know; then again while it is changed, halfway where there is a half.
        fail(patch, kind)
        options = Options(bootstrap, directory=tmp_path / "run", once=True, restarts_max=3, batch_records=16)
        status = Run(load("lake"), options, settings, spark).run()
    assert (status.state, status.queries[0].restarts) == ("done", 1), status.error
    assert status.dead_letters >= 1
    assert table.rows() == expected(0, 30)

    # A new column, and small files are compacted: of closed dates in a directory, which may change under its readers.
    feed(bootstrap, settings["input"], events(30, 60, size=7))
    settings |= {"schema": f"{SCHEMA}, size INT", "compact_every": 1}
    before = table.files()
    run_once(spark, "lake", bootstrap, tmp_path / "run", settings)
    assert table.rows() == [*expected(0, 30), *expected(30, 60, 7)]
    assert table.files() == (3 if kind != "parquet" else 3 + before // 3) < before


def fail(patch: pytest.MonkeyPatch, kind: str) -> None:
    """Once, when the table has changed or, in a directory, when some files are where they belong."""
    where: dict[str, tuple[type, str, int]] = {
        "delta": (Delta, "write", 0),
        "parquet": (Files, "move", 2),
        "iceberg": (Iceberg, "_commit", 0),
    }
    owner, name, first = where[kind]
    patch.setattr(owner, name, failing(getattr(owner, name), itertools.count(), first))


def failing(function: Callable[..., Any], calls: Iterator[int], wrong: int) -> Any:
    """The function, but call number `wrong` raises after it has done what it does."""

    def call(*arguments: Any) -> Any:
        found = function(*arguments)
        if next(calls) == wrong:
            raise ConnectionError("the driver is gone")
        return found

    return call


def test_a_directory_whatever_step_fails(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches and a compaction, once for each step that can fail."""
    query = "select id, date'2026-11-24' + cast(id % 2 as int) as date from range({}, {}, 1, 2)"
    batches = [spark.sql(query.format(first, first + 4)) for first in (0, 4)]
    for wrong in itertools.count():
        calls, table = itertools.count(), Parquet(str(tmp_path / str(wrong)), 1 << 20)
        with monkeypatch.context() as patch:
            for name in ("move", "delete"):
                patch.setattr(Files, name, failing(getattr(Files, name), calls, wrong))
            for number, batch in enumerate(batches):
                for _ in range(2):  # as Spark does: the batch comes again when it failed
                    try:
                        table.write(batch, "query", number)
                        if number == 1:
                            table.compact(batch, "query", number)
                        break
                    except ConnectionError:
                        continue
        found = dataset.dataset(table.path, partitioning="hive").to_table(columns=["id"])
        assert sorted(found["id"].to_pylist()) == list(range(8)), f"step {wrong}"
        by_date = [len(list(Path(table.path).glob(f"date={day}/*.parquet"))) for day in ("2026-11-24", "2026-11-25")]
        assert by_date == [1, 4], f"step {wrong}"
        if next(calls) <= wrong:
            break
    assert wrong >= 10


def test_an_iceberg_table_that_others_write_to(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They commit between a look at the table and the commit: another table's row, or the batch itself by a driver that
    was thought dead."""
    properties = f"uri=sqlite:///{tmp_path}/catalog.db,warehouse=file://{tmp_path}/warehouse"
    rows = spark.sql("select id, date'2026-11-25' as date from range(0, 4, 1, 2)")

    def table() -> Iceberg:
        return Iceberg(open_catalog("default", properties), "lake.t", 1 << 20)

    def ids() -> list[int]:
        return sorted(table().catalog.load_table("lake.t").scan().to_arrow()["id"].to_pylist())

    def interrupted(mine: int, query: str, number: int) -> None:
        """A batch, with somebody else's commit just before its own."""
        commit = Transaction.commit_transaction

        def second(self: Transaction) -> Any:
            patch.setattr(Transaction, "commit_transaction", commit)
            table().write(rows, query, number)
            return commit(self)

        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "commit_transaction", second)
            table().write(rows, "query", mine)

    table().write(rows, "query", 0)
    interrupted(1, "another", 0)
    assert ids() == sorted([0, 1, 2, 3] * 3)
    table().write(rows, "query", 1)
    assert ids() == sorted([0, 1, 2, 3] * 3)
    interrupted(2, "query", 2)
    assert ids() == sorted([0, 1, 2, 3] * 4)
    table().compact(rows, "query", 2)
    assert ids() == sorted([0, 1, 2, 3] * 4)
    assert len(list(table().catalog.load_table("lake.t").scan().plan_files())) == 1


@pytest.mark.nightly(
    "tests/spark/pipelines/test_pipeline_lake.py::test_every_record_once",
    "tests/spark/pipelines/test_pipeline_command.py::test_stopped_killed_and_gone_on_with",
)
def test_a_driver_that_is_killed(bootstrap: str, tmp_path: Path, spark: Any, delta: list[Path]) -> None:
    """As a command, with a session that is made for Delta: kill -9 between batches or within one, as it comes."""
    table = Table("delta", spark, tmp_path)
    settings = {**names("input"), **table.settings, "schema": SCHEMA, "compact_every": "3"}
    feed(bootstrap, settings["input"], events(0, 2000))
    arguments = [
        "-b",
        bootstrap,
        "--master",
        "local[2]",
        *set_(settings),
        "--spark",
        f"spark.jars={','.join(map(str, delta))}",
        "--spark",
        "spark.sql.shuffle.partitions=2",
    ]
    command = Command("lake", tmp_path, *arguments, "--batch-records", "200")
    try:
        command.until(lambda status: bool(status["queries"]) and status["queries"][0]["rows"] >= 200)
        assert command.end(signal.SIGKILL) == -signal.SIGKILL
        assert 0 < len(table.rows()) < 2000
        command = Command("lake", tmp_path, *arguments, "--once")
        command.until(lambda status: status["state"] == "done")
        assert command.ended() == 0
    finally:
        command.process.kill()
    assert table.rows() == expected(0, 2000)
