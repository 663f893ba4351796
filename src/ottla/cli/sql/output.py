"""Rows of a query as people and programs read them: a table, CSV, or an object a line."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa

from ottla.cli.output import print_json_line, print_table, visible
from ottla.sql.rows import is_number, members, moment, text, unique, values

TABLE_ROWS = 1000
"""Rows laid out together under one heading, so that rows show while more are read."""


class Table:
    """Aligned columns, numbers to the right."""

    def __init__(self, schema: pa.Schema) -> None:
        from rich.markup import escape

        self._headings = [
            escape(visible(field.name)).rstrip(">") + (">" if is_number(field.type) else "") for field in schema
        ]
        self._rows: list[tuple[Any, ...]] = []
        self._printed = False

    def add(self, batch: pa.RecordBatch) -> None:
        for row in _rows(batch, _shown):
            self._rows.append(row)
            if len(self._rows) >= TABLE_ROWS:
                self.end()

    def end(self) -> None:
        """Print what was not printed; the heading also of a table without rows."""
        if self._rows or not self._printed:
            print_table(self._headings, self._rows)
        self._rows, self._printed = [], True


class Plan:
    """Prints what EXPLAIN draws."""

    def __init__(self, schema: pa.Schema) -> None:
        """The schema has two columns, a name and a drawing."""

    def add(self, batch: pa.RecordBatch) -> None:
        for drawing in batch.column(1).to_pylist():
            print(drawing.rstrip("\n"))

    def end(self) -> None:
        """Everything is written."""


class Csv:
    """A line of names, then a line a row; null is empty, bytes are text."""

    def __init__(self, schema: pa.Schema) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._writer.writerow(schema.names)

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.writerows(_rows(batch, _csv_cell))

    def end(self) -> None:
        """Everything is written."""


class Json:
    """An object a row; bytes that are no text stand under `NAME_base64`, as those of `ottla consume --json` do."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = unique(schema.names)

    def add(self, batch: pa.RecordBatch) -> None:
        for row in _rows(batch, lambda value: value):
            print_json_line(members(zip(self._names, row, strict=True)))

    def end(self) -> None:
        """Everything is written."""


Output = Table | Plan | Csv | Json


def _table(schema: pa.Schema) -> Output:
    return Plan(schema) if schema.names == ["explain_key", "explain_value"] else Table(schema)


FORMATS: dict[str, Callable[[pa.Schema], Output]] = {"table": _table, "csv": Csv, "json": Json}


def _rows(batch: pa.RecordBatch, cell: Callable[[Any], Any]) -> Iterator[tuple[Any, ...]]:
    columns = [[cell(each) for each in values(column)] for column in batch.columns]
    return zip(*columns, strict=True)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return moment(value, " ").removesuffix("Z") if isinstance(value, datetime) else text(value)


def _csv_cell(value: Any) -> Any:
    return value if value is None or (isinstance(value, int | float) and not isinstance(value, bool)) else text(value)
