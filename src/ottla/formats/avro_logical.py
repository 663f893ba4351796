"""Avro's logical types: decimal, date, time, timestamp; uuid is the text that it is. One that is not known,
or whose place is
wrong, is left out of account, as Avro's specification says. Nanoseconds have no type in Spark: they stay a long."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.formats.ddl import DECIMAL_PRECISION_MAX
from ottla.formats.errors import SchemaError
from ottla.formats.nested import integer, scalars

DAY_US = 86_400_000_000
WIDE = Context(prec=120)

UTC = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
TIMES: dict[tuple[str, pa.DataType], tuple[pa.DataType, int]] = {
    ("date", pa.int32()): (pa.date32(), 1),
    ("timestamp-millis", pa.int64()): (UTC, 1000),
    ("timestamp-micros", pa.int64()): (UTC, 1),
    ("local-timestamp-millis", pa.int64()): (LOCAL, 1000),
    ("local-timestamp-micros", pa.int64()): (LOCAL, 1),
    ("time-millis", pa.int32()): (pa.time64("ns"), 1_000_000),
    ("time-micros", pa.int64()): (pa.time64("ns"), 1000),
}
"""(name, what it is on the wire): (its Arrow type, how many of that type's units one is)."""


def logical(schema: dict[str, Any], storage: pa.DataType, make: Callable[..., Any]) -> Any:
    """The codec (`make`) of a schema with a logical type over `storage`; None where it has none that is known."""
    name = str(schema.get("logicalType"))
    if name == "decimal" and storage == pa.binary():
        return _decimal(schema, make)
    if (name, storage) not in TIMES:
        return None
    kind, factor = TIMES[name, storage]
    bits = 32 if kind == pa.date32() else 64
    unit = pa.int32() if bits == 32 else pa.int64()

    def one(value: Any) -> int:
        number = integer(value * factor, bits)
        if pa.types.is_time(kind) and not 0 <= number < DAY_US * 1000:
            raise ValueError("a time lies within a day")
        return number

    def quick(values: list[Any]) -> pa.Array:
        if pa.types.is_time(kind):
            raise ValueError("each is to be looked at")
        return pc.multiply_checked(pa.array(values, unit), pa.scalar(factor, unit)).cast(kind)

    def raw(column: pa.Array) -> list[Any]:
        numbers = column.cast(kind).cast(unit).to_pylist()
        return numbers if factor == 1 else [None if value is None else value // factor for value in numbers]

    return make(kind, scalars(kind, one, {int}, quick), raw, frozenset({int}), 1)


def _decimal(schema: dict[str, Any], make: Callable[..., Any]) -> Any:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return None
    if precision > DECIMAL_PRECISION_MAX:
        raise SchemaError(f"a decimal of {precision} digits: a column holds at most {DECIMAL_PRECISION_MAX}")
    size = schema.get("size") if schema["type"] == "fixed" else None
    kind = pa.decimal128(precision, scale)
    one = partial(_number, scale=scale, limit=10**precision)
    raw = partial(_raw, kind=kind, size=size)
    return make(kind, scalars(kind, one), raw, frozenset({bytes}), 1 if size is None else size)


def _number(value: bytes, scale: int, limit: int) -> Decimal:
    number = int.from_bytes(value, "big", signed=True)
    if not -limit < number < limit:
        raise ValueError("more digits than its precision")
    return Decimal(number).scaleb(-scale, WIDE)


def _raw(column: pa.Array, kind: pa.DataType, size: int | None) -> list[Any]:
    found: list[bytes | None] = []
    for value in column.cast(kind).to_pylist():
        if value is None:
            found.append(None)
            continue
        number = int(value.scaleb(kind.scale, WIDE))
        found.append(number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True))
    return found
