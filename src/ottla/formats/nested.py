"""Python values, a list for each column, put together to Arrow arrays; a value that does not fit makes its
record a bad one.

A builder takes the values of a column, the row that each belongs to, and notes bad rows: their value is null there, the
record's other fields are kept, as Spark's PERMISSIVE mode keeps them (spark.sql.json.enablePartialResults).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

NONE = type(None)


@dataclass
class Bad:
    """Rows that could not be read whole, with the first reason of each."""

    reasons: dict[int, str] = field(default_factory=dict)

    def mark(self, row: int, reason: str) -> None:
        self.reasons.setdefault(row, reason)


Build = Callable[[list[Any], Sequence[int], Bad], pa.Array]


def scalars(
    kind: pa.DataType,
    one: Callable[[Any], Any],
    fast: Collection[type] = (),
    quick: Callable[[list[Any]], pa.Array] | None = None,
) -> Build:
    """Columns of `kind`. Values of the types `fast` go through `quick` (or Arrow) at once; where that fails,
    or others are
    among them, `one` makes each what Arrow takes for `kind`, or raises ValueError, TypeError or ArithmeticError."""
    at_once = {*fast, NONE} if fast else set()

    def build(values: list[Any], rows: Sequence[int], bad: Bad) -> pa.Array:
        if at_once.issuperset(map(type, values)):
            try:
                return pa.array(values, kind) if quick is None else quick(values)
            except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
                pass  # one of them is bad: which one?
        found: list[Any] = []
        for row, value in zip(rows, values, strict=True):
            try:
                found.append(None if value is None else one(value))
            except (ValueError, TypeError, ArithmeticError) as error:
                bad.mark(row, f"{_short(value)} is not {kind}: {error}")
                found.append(None)
        return pa.array(found, kind)

    return build


def _short(value: Any) -> str:
    text = ascii(value) if not isinstance(value, int) or value.bit_length() < 200 else "a long number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _only(kind: type, values: list[Any], rows: Sequence[int], bad: Bad, wanted: str) -> list[Any]:
    if {kind, NONE}.issuperset(map(type, values)):
        return values
    found = list(values)
    for index, value in enumerate(values):
        if value is not None and type(value) is not kind:
            bad.mark(rows[index], f"{_short(value)} is not {wanted}")
            found[index] = None
    return found


def struct(fields: Sequence[tuple[str, pa.DataType, Build]]) -> tuple[pa.DataType, Build]:
    """Dicts; a key that is absent is null, one that no field has is left out."""
    kinds = [pa.field(name, kind) for name, kind, _ in fields]
    whole = pa.struct(kinds)

    def build(values: list[Any], rows: Sequence[int], bad: Bad) -> pa.Array:
        values = _only(dict, values, rows, bad, "an object")
        if not kinds:
            return pa.array(values, whole)
        columns = [
            each([None if value is None else value.get(name) for value in values], rows, bad)
            for name, _, each in fields
        ]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=kinds, mask=mask)

    return whole, build


def _offsets(values: list[Any]) -> pa.Array:
    """Where each begins; null where a value is null."""
    place = 0
    found: list[int | None] = []
    for value in values:
        found.append(None if value is None else place)
        place += 0 if value is None else len(value)
    found.append(place)
    return pa.array(found, pa.int32())


def _owners(values: list[Any], rows: Sequence[int]) -> list[int]:
    return [row for row, value in zip(rows, values, strict=True) if value for _ in value]


def array(kind: pa.DataType, items: Build) -> tuple[pa.DataType, Build]:
    """Lists of `kind`."""
    whole = pa.list_(kind)

    def build(values: list[Any], rows: Sequence[int], bad: Bad) -> pa.Array:
        values = _only(list, values, rows, bad, "an array")
        flat = [item for value in values if value for item in value]
        return pa.ListArray.from_arrays(_offsets(values), items(flat, _owners(values, rows), bad), type=whole)

    return whole, build


def mapping(kind: pa.DataType, items: Build) -> tuple[pa.DataType, Build]:
    """Maps of strings to `kind`, of dicts."""
    whole = pa.map_(pa.string(), kind)
    keys = scalars(pa.string(), utf8, {str})

    def build(values: list[Any], rows: Sequence[int], bad: Bad) -> pa.Array:
        values = _only(dict, values, rows, bad, "an object")
        names = [name for value in values if value for name in value]
        owners = _owners(values, rows)
        broken = Bad()
        keys(names, range(len(names)), broken)  # a key is never null: one that has no UTF-8 makes the map null
        if broken.reasons:
            for index in broken.reasons:
                bad.mark(owners[index], "a key of a map is not UTF-8")
            lost = {owners[index] for index in broken.reasons}
            values = [None if row in lost else value for row, value in zip(rows, values, strict=True)]
            return build(values, rows, bad)
        flat = [item for value in values if value for item in value.values()]
        return pa.MapArray.from_arrays(_offsets(values), pa.array(names, pa.string()), items(flat, owners, bad))

    return whole, build


def utf8(value: Any) -> str:
    """A str with a UTF-8 form (none has a lone surrogate). Raises ValueError, TypeError."""
    if type(value) is not str:
        raise TypeError("expected a string")
    value.encode()
    return value


def integer(value: Any, bits: int) -> int:
    """An int, not a bool, of so many bits. Raises TypeError, OverflowError."""
    if type(value) is not int:
        raise TypeError("expected a whole number")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OverflowError(f"it has more than {bits} bits")
    return value


def rows_of(column: pa.Array) -> tuple[list[int], list[Any]]:
    """(start of each and the end of the last, validity) of a list or map array, slices accounted for."""
    return column.offsets.to_pylist(), column.is_valid().to_pylist()
