"""A directory of Parquet files, by date, that any reader can list.

A batch is written below `_ottla`, which readers do not look into. Then a plan is created there, one file that says what
moves where (and of a compaction also what is deleted): from then on the batch is decided, and whoever comes to it again
carries out what of the plan is left to do. Without a plan what is there is deleted, and the batch is written again.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Iterable

from pyspark.sql import DataFrame

from ottla.pipelines.lake_files import File, Files

PLANS_KEPT = 100
SMALL_MIN = 2
"""Files of a date that one is made of, at least."""


class Parquet:
    """Parquet files in a directory."""

    def __init__(self, path: str, target_bytes: int) -> None:
        self.path = path
        self.target_bytes = target_bytes

    def write(self, rows: DataFrame, query: str, number: int) -> None:
        files = Files(rows.sparkSession, self.path)
        own = f"{files.root}/_ottla/{query}"
        newest = max((int(name[:12]) for name in files.names(own) if name.endswith(".plan")), default=-1)
        if number > newest:
            for name in files.names(own):
                if not name.endswith(".plan"):  # of drivers that were killed before they had decided
                    files.delete(f"{own}/{name}")
            staging = f"{own}/{number}-{uuid.uuid4().hex[:8]}"
            save(rows, staging, ["date"])
            moves = self._moves(files, staging, files.below(staging), f"{query[:8]}-{number}")
            files.create(f"{own}/{number:012}.plan", json.dumps({"moves": moves, "deletes": []}))
        self._carry_out(files, f"{own}/{number:012}.plan")
        if number > newest:
            for name in [name for name in files.names(own) if name.endswith(".plan")][:-PLANS_KEPT]:
                files.delete(f"{own}/{name}")

    def _moves(self, files: Files, staging: str, found: Iterable[File], name: str) -> dict[str, str]:
        """Where each file goes: a name that says which batch it is of."""
        moves = {}
        for count, file in enumerate(found):
            directory = posixpath.relpath(posixpath.dirname(file.path), staging)
            moves[file.path] = f"{files.root}/{directory}/{name}-{count}.parquet"
        return moves

    def _carry_out(self, files: Files, plan: str) -> None:
        """A move without a source is done."""
        if not files.exists(plan):
            return
        found = json.loads(files.read(plan))
        for source, target in found["moves"].items():
            if files.exists(source):
                files.move(source, target)
        for path in found["deletes"]:
            files.delete(path)

    def compact(self, rows: DataFrame, query: str, number: int) -> None:
        """All dates but the newest, which more is coming to. Whoever lists the directory in the moment between the last
        move and the last deletion sees rows twice."""
        files = Files(rows.sparkSession, self.path)
        own = f"{files.root}/_ottla/{query}"
        plan = f"{own}/{number:012}-compact.plan"
        if not files.exists(plan):
            moves, deletes = {}, []
            staging = f"{own}/{number}-compact-{uuid.uuid4().hex[:8]}"
            dates = [name for name in files.names(files.root) if name.startswith("date=")]
            for date in dates[:-1]:
                small = [file for file in files.below(f"{files.root}/{date}") if file.size < self.target_bytes * 3 // 4]
                if len(small) < SMALL_MIN:
                    continue
                # Older files may have fewer columns, and none has the date.
                reader = rows.sparkSession.read.option("mergeSchema", "true")
                merged = reader.parquet(*[file.path for file in small])
                save(merged.coalesce(parts(small, self.target_bytes)), f"{staging}/{date}")
                deletes += [file.path for file in small]
            moves = self._moves(files, staging, files.below(staging), f"{query[:8]}-{number}-compact")
            files.create(plan, json.dumps({"moves": moves, "deletes": deletes}))
        self._carry_out(files, plan)


def save(rows: DataFrame, path: str, by: Iterable[str] = ()) -> None:
    """Timestamps in microseconds, as readers other than Spark know them."""
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    rows.write.partitionBy(*by).mode("overwrite").parquet(path)


def parts(small: Iterable[File], target_bytes: int) -> int:
    """How many files these become."""
    return max(1, round(sum(file.size for file in small) / target_bytes))
