"""Rows of a query as people and programs read them: a table, CSV, or an object a line."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ottla.cli.output import bytes_field, print_json_line, print_table, printable, visible

TABLE_ROWS = 1000
"""Rows laid out together under one heading, so that rows show while more are read."""


class Table:
    """Aligned columns, numbers to the right."""

    def __init__(self, schema: pa.Schema) -> None:
        from rich.markup import escape

        self._headings = [
            escape(visible(field.name)).rstrip(">") + (">" if _is_number(field.type) else "") for field in schema
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
            print_json_line(_members(zip(self._names, row, strict=True)))

    def end(self) -> None:
        """Everything is written."""


Output = Table | Plan | Csv | Json


def _table(schema: pa.Schema) -> Output:
    return Plan(schema) if schema.names == ["explain_key", "explain_value"] else Table(schema)


FORMATS: dict[str, Callable[[pa.Schema], Output]] = {"table": _table, "csv": Csv, "json": Json}


def unique(names: list[str]) -> list[str]:
    """Make names unique by appending numbers: an object has a name once."""
    found: list[str] = []
    for name in names:
        free, number = name, 1
        while free in found:
            free, number = f"{name}_{number}", number + 1
        found.append(free)
    return found


def _rows(batch: pa.RecordBatch, cell: Callable[[Any], Any]) -> Iterator[tuple[Any, ...]]:
    columns = [[cell(each) for each in _values(column)] for column in batch.columns]
    return zip(*columns, strict=True)


def _values(column: pa.Array) -> list[Any]:
    try:
        found = column.to_pylist()
    except (OverflowError, ValueError):  # years that Python's calendar has not
        found = column.cast(pa.string()).to_pylist()
    return [_plain(value, column.type) for value in found]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value as JSON has it, and bytes and times."""
    types = pa.types
    if value is None:
        return None
    if types.is_struct(kind):
        return {field.name: _plain(value.get(field.name), field.type) for field in kind}
    if types.is_map(kind):
        pairs = [(_plain(key, kind.key_type), _plain(item, kind.item_type)) for key, item in value]
        return {key if isinstance(key, str) else _text(key): item for key, item in pairs}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, Decimal):
        return int(value) if kind.scale == 0 else float(value) if kind.precision <= 15 else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, pa.MonthDayNano):
        return f"{value.months} months {value.days} days {value.nanoseconds / 1e9:g} seconds"
    return value


def _moment(value: datetime, separator: str) -> str:
    text = value.isoformat(separator, "microseconds" if value.microsecond % 1000 else "milliseconds")
    return text.replace("+00:00", "Z") if value.tzinfo is UTC or text.endswith("+00:00") else text


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, datetime):
        return _moment(value, "T")
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(_item(value), ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return _moment(value, " ").removesuffix("Z") if isinstance(value, datetime) else _text(value)


def _csv_cell(value: Any) -> Any:
    return value if value is None or (isinstance(value, int | float) and not isinstance(value, bool)) else _text(value)


def _members(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if isinstance(value, bytes):
            found.update(bytes_field(name, value))
        else:
            found[name] = _item(value)
    return found


def _item(value: Any) -> Any:
    if isinstance(value, dict):
        return _members(value.items())
    if isinstance(value, list):
        return [_item(each) for each in value]
    if isinstance(value, bytes):
        whole = bytes_field("", value)
        return whole[""] if "" in whole else {"base64": whole["_base64"]}
    return _moment(value, "T") if isinstance(value, datetime) else value


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
