"""An Iceberg table, through PyIceberg: Spark's tasks write Parquet files, one commit of the driver adds them.

The number of the last batch of a query is a property of the table that changes in the same commit, so that a batch that
comes again is left out; commits are refused by the catalog where the table has changed since it was looked at.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ottla.pipelines.lake_files import File, Files
from ottla.pipelines.lake_parquet import SMALL_MIN, parts, save
from ottla.pipelines.runner import PipelineError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

logger = logging.getLogger("ottla.pipelines")

COMMITS_MAX: Final = 10
"""Attempts to commit one batch while others commit to the table too."""
_DIRECTORY: Final = "ottla_date"


def open_catalog(name: str, properties: str) -> Catalog:
    """Raises PipelineError."""
    pairs = [part.partition("=") for part in properties.split(",") if part.strip()]
    if wrong := [key for key, sign, _ in pairs if not sign]:
        raise PipelineError(f"properties: expected name=value,..., got {wrong[0]!r}")
    try:
        return load_catalog(name, **{key.strip(): value.strip() for key, _, value in pairs})
    except Exception as error:
        raise PipelineError(f"catalog {name}: {error}") from None


class Iceberg:
    """An Iceberg table in a catalog; created if missing, with its namespace."""

    def __init__(self, catalog: Catalog, name: str, target_bytes: int) -> None:
        if "." not in name:
            raise PipelineError(f"table: expected NAMESPACE.NAME, got {name!r}")
        self.catalog, self.name, self.target_bytes = catalog, name, target_bytes

    def write(self, rows: DataFrame, query: str, number: int) -> None:
        columns = to_arrow_schema(rows.schema, timezone="UTC")
        schema = pa.schema([column.with_nullable(True) for column in columns])  # Spark's files say nothing else
        table = self._table(schema)
        if _done(table, query) >= number:
            return
        files = Files(rows.sparkSession, f"{table.location()}/data")
        own = f"{files.root}/{query}"
        for name in files.names(own):
            if name.startswith(f"{number}-"):  # of a driver that was killed before its commit
                files.delete(f"{own}/{name}")
        written = self._save(rows, files, f"{own}/{number}-{uuid.uuid4().hex[:8]}")
        if not written:
            return

        def change(table: Table, transaction: Transaction) -> bool:
            if _done(table, query) >= number:
                return False
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            transaction.set_properties({_mark(query): str(number)})
            told = {"ottla.query-id": query, "ottla.batch-id": str(number)}
            transaction.add_files([file.path for file in written], told, check_duplicate_files=False)
            return True

        self._commit(change)

    def _save(self, rows: DataFrame, files: Files, place: str) -> list[File]:
        """A date is a column of its files too, as Iceberg wants it."""
        save(rows.withColumn(_DIRECTORY, F.col("date")), place, [_DIRECTORY])
        return files.below(place)

    def _table(self, schema: pa.Schema) -> Table:
        try:
            return self.catalog.load_table(self.name)
        except NoSuchTableError:
            self.catalog.create_namespace_if_not_exists(posixpath.splitext(self.name)[0])
            with self.catalog.create_table_transaction(self.name, schema) as made, made.update_spec() as spec:
                spec.add_identity("date")
            return self.catalog.load_table(self.name)

    def _commit(self, change: Callable[[Table, Transaction], bool]) -> None:
        """Have `change` prepare a transaction, again where somebody else's was first; it returns whether there is
        anything to commit. Raises CommitFailedException."""
        for again in reversed(range(COMMITS_MAX)):
            table = self.catalog.load_table(self.name)
            # PyIceberg would put the change onto the table as it is by then, without asking whether it is done.
            table.metadata.properties["commit.retry.num-retries"] = "0"
            transaction = table.transaction()
            try:
                if change(table, transaction):
                    transaction.commit_transaction()
                return
            except CommitFailedException:
                if not again:
                    raise
                logger.info("table %s has changed in the meantime: retrying", self.name)

    def compact(self, rows: DataFrame, query: str, number: int) -> None:
        """Files that are replaced stay for those who read older snapshots, until somebody expires these."""
        table = self.catalog.load_table(self.name)
        small: dict[object, list[DataFile]] = {}
        known = set()
        for task in table.scan().plan_files():
            known.add(task.file.file_path)
            if task.file.file_size_in_bytes < self.target_bytes * 3 // 4 and not task.delete_files:
                small.setdefault(task.file.partition[0], []).append(task.file)
        files = Files(rows.sparkSession, f"{table.location()}/data")
        own = f"{files.root}/{query}"
        for name in files.names(own):
            place = f"{own}/{name}"
            if name.startswith(f"{number}-compact-") and known.isdisjoint(file.path for file in files.below(place)):
                files.delete(place)
        small = {date: found for date, found in small.items() if len(found) >= SMALL_MIN}
        if not small:
            return
        place = f"{own}/{number}-compact-{uuid.uuid4().hex[:8]}"
        reader = rows.sparkSession.read.schema(from_arrow_schema(table.schema().as_arrow()))
        made: list[File] = []
        for count, found in enumerate(small.values()):
            few = parts([File(file.file_path, file.file_size_in_bytes) for file in found], self.target_bytes)
            merged = reader.parquet(*[file.file_path for file in found]).coalesce(few)
            made += self._save(merged, files, f"{place}/{count}")
        old = [file for found in small.values() for file in found]
        self._commit(lambda table, transaction: self._replace(table, transaction, old, [each.path for each in made]))

    def _replace(self, table: Table, transaction: Transaction, old: list[DataFile], new: Iterable[str]) -> bool:
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        there = {task.file.file_path for task in table.scan().plan_files()}
        if not there.issuperset(file.file_path for file in old):
            return False  # somebody else has rewritten them; what was made here is an orphan
        with transaction.update_snapshot({"ottla.compacted": str(len(old))}).overwrite() as update:
            for file in old:
                update.delete_data_file(file)
            for made in parquet_files_to_data_files(table.io, table.metadata, iter(new)):
                update.append_data_file(made)
        return True


def _mark(query: str) -> str:
    return f"ottla.batch.{query}"


def _done(table: Table, query: str) -> int:
    return int(table.properties.get(_mark(query), -1))
