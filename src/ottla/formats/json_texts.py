"""Arrow columns as JSON texts. The fields of a row are put together column by column, in Arrow, for a sixth of what a
dict for each row costs; only lists, maps and strings that need escapes become Python values."""

from __future__ import annotations

import base64
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.formats.nested import rows_of

_ESCAPED: Final = bytes([*range(0x20), *b'"\\'])
"""Bytes that JSON has in no string."""


def texts(column: pa.Array) -> pa.Array:
    """JSON of each row, a string as orjson writes it; null stays null, and fields with null are not written. Raises
    ValueError for strings that are not UTF-8."""
    types, kind = pa.types, column.type
    if types.is_struct(kind) and kind.num_fields:
        return _objects(column)
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        # To a string without a zone, as with one Arrow takes thirty times as long.
        naive = column.cast(pa.timestamp("us", kind.tz and "UTC")).cast(pa.timestamp("us")).cast(pa.string())
        return _joined('"', pc.replace_substring(naive, " ", "T"), f'{zone}"')
    if types.is_integer(kind) or types.is_boolean(kind):
        return column.cast(pa.string())
    if types.is_floating(kind) or types.is_decimal(kind):
        return _numbers(column)
    if types.is_string(kind) and _is_plain(column):
        return _joined('"', column, '"')
    return _dumped(column)


def _objects(column: pa.Array) -> pa.Array:
    fields = [
        _joined(f",{_dumps(each.name).decode()}:", texts(child))
        for each, child in zip(column.type, column.flatten(), strict=True)
    ]
    # Not null_handling="skip": a row of which all is null would be missing.
    members = pc.binary_join_element_wise(*fields, "", null_handling="replace", null_replacement="")
    found = _joined(pc.binary_replace_slice(members, 0, 1, "{"), "}")
    return found if not column.null_count else pc.if_else(column.is_valid(), found, pa.scalar(None, pa.string()))


def _joined(*parts: pa.Array | str) -> pa.Array:
    """Null where one of the parts is."""
    return pc.binary_join_element_wise(*parts, "")


def _numbers(column: pa.Array) -> pa.Array:
    """As one array of JSON, which is cut where no number has a comma."""
    rows = _plain(column)
    found = _dumps(rows)[1:-1].decode().split(",") if rows else []
    return pa.array([None if row is None else text for row, text in zip(rows, found, strict=True)], pa.string())


def _is_plain(column: pa.Array) -> bool:
    """Whether the strings are ASCII without anything to escape."""
    offsets, data = column.buffers()[1:]
    if data is None or not len(column):
        return True
    ends = memoryview(offsets).cast("i")
    held = bytes(memoryview(data)[ends[column.offset] : ends[column.offset + len(column)]])
    return held.isascii() and len(held.translate(None, _ESCAPED)) == len(held)


def _dumped(column: pa.Array) -> pa.Array:
    return pa.array([None if row is None else _dumps(row).decode() for row in _plain(column)], pa.string())


def _dumps(value: Any) -> bytes:
    from orjson import OPT_NON_STR_KEYS, dumps

    return dumps(value, option=OPT_NON_STR_KEYS)


def _plain(column: pa.Array) -> list[Any]:
    """Values that orjson accepts, one per row."""
    types, kind = pa.types, column.type
    if types.is_struct(kind):
        names = [each.name for each in kind]
        children = [_plain(each) for each in column.flatten()]
        rows = zip(*children, strict=True) if children else [()] * len(column)
        found = [{name: item for name, item in zip(names, row, strict=True) if item is not None} for row in rows]
        return [row if there else None for row, there in zip(found, column.is_valid().to_pylist(), strict=True)]
    if types.is_list(kind) or types.is_large_list(kind):
        offsets, there = rows_of(column)
        items = _plain(column.values)
        return [items[offsets[at] : offsets[at + 1]] if there[at] else None for at in range(len(column))]
    if types.is_map(kind):
        offsets, there = rows_of(column)
        pairs = list(zip(_keys(column.keys), _plain(column.items), strict=True))
        return [dict(pairs[offsets[at] : offsets[at + 1]]) if there[at] else None for at in range(len(column))]
    if types.is_floating(kind):
        finite = pc.all(pc.is_finite(column)).as_py() is not False
        return column.to_pylist() if finite else [_number(value) for value in column.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        texts = pc.strftime(column.cast(pa.timestamp("us", kind.tz and "UTC")), "%Y-%m-%dT%H:%M:%S")
        return [None if text is None else text + zone for text in texts.to_pylist()]
    if types.is_decimal(kind):
        from orjson import Fragment

        return [None if value is None else Fragment(f"{value:f}") for value in column.to_pylist()]
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _keys(column: pa.Array) -> list[str]:
    return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _number(value: float | None) -> float | str | None:
    if value is None or value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
