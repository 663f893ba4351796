"""Values of a query's rows as Python has them."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ottla.config.units import bytes_field, printable


def unique(names: list[str]) -> list[str]:
    """Make names unique by appending numbers: an object has a name once."""
    found: list[str] = []
    for name in names:
        free, number = name, 1
        while free in found:
            free, number = f"{name}_{number}", number + 1
        found.append(free)
    return found


def values(column: pa.Array) -> list[Any]:
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
        return {key if isinstance(key, str) else text(key): item for key, item in pairs}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, Decimal):
        return int(value) if kind.scale == 0 else float(value) if kind.precision <= 15 else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, pa.MonthDayNano):
        return f"{value.months} months {value.days} days {value.nanoseconds / 1e9:g} seconds"
    return value


def moment(value: datetime, separator: str) -> str:
    text = value.isoformat(separator, "microseconds" if value.microsecond % 1000 else "milliseconds")
    return text.replace("+00:00", "Z") if value.tzinfo is UTC or text.endswith("+00:00") else text


def text(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, datetime):
        return moment(value, "T")
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(_item(value), ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)


def members(pairs: Any) -> dict[str, Any]:
    """The members of an object; bytes that are no text stand under `NAME_base64`."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if isinstance(value, bytes):
            found.update(bytes_field(name, value))
        else:
            found[name] = _item(value)
    return found


def _item(value: Any) -> Any:
    if isinstance(value, dict):
        return members(value.items())
    if isinstance(value, list):
        return [_item(each) for each in value]
    if isinstance(value, bytes):
        whole = bytes_field("", value)
        return whole[""] if "" in whole else {"base64": whole["_base64"]}
    return moment(value, "T") if isinstance(value, datetime) else value


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
