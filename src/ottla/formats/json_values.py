"""JSON bytes to Arrow columns as Spark's `from_json` reads them, and back as `to_json` writes them.

Kept from Spark: a number for a STRING is its text, a number for a TIMESTAMP is seconds, BINARY is base64,
text "NaN" and
"Infinity" are of FLOAT and DOUBLE, a decimal is rounded half up to its scale, fields with null are not
written, matching
of names is by case. Other than Spark: an empty value is a bad record (Spark: a null), timestamps are written with their
microseconds and in UTC, an array is not read as a struct.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from ottla.formats.errors import SchemaError
from ottla.formats.nested import Bad, Build, array, integer, mapping, scalars, struct, utf8

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
WIDE = Context(prec=120, rounding=ROUND_HALF_UP)
NUMBERS = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "INF": float("inf"),
    "+INF": float("inf"),
    "-Infinity": float("-inf"),
    "-INF": float("-inf"),
}
"""Texts that Spark takes for numbers."""


class JsonValues:
    """Values of one type; a record's whole value, of any type, is a JSON text."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._build = _builder(kind)
        self._load = _loader(kind)

    def decode(self, values: list[bytes | None], bad: Bad) -> pa.Array:
        """A column with a row for each of `values`; null and noted in `bad` where it cannot be read."""
        load = self._load
        found: list[Any] = []
        for row, value in enumerate(values):
            try:
                found.append(None if value is None else load(value))
            except (ValueError, RecursionError) as error:
                bad.mark(row, f"not JSON: {error}")
                found.append(None)
        return self._build(found, range(len(found)), bad)

    def encode(self, column: pa.Array) -> pa.Array:
        """JSON bytes of each row; null stays null."""
        from ottla.formats.json_texts import texts  # what only reads does without pyarrow.compute

        return texts(column).cast(pa.binary())


def _loader(kind: pa.DataType) -> Callable[[bytes], Any]:
    if _has_decimals(kind):
        # orjson has no way to keep all digits of a number.
        return partial(json.loads, parse_float=Decimal)
    from orjson import loads

    return loads


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(index).type) for index in range(kind.num_fields))


def _builder(kind: pa.DataType) -> Build:
    types = pa.types
    if types.is_struct(kind):
        return struct([(each.name, each.type, _builder(each.type)) for each in kind])[1]
    if types.is_list(kind):
        return array(kind.value_type, _builder(kind.value_type))[1]
    if types.is_map(kind):
        return mapping(kind.item_type, _builder(kind.item_type))[1]
    if types.is_signed_integer(kind):
        return scalars(kind, partial(integer, bits=kind.bit_width), {int})
    if types.is_floating(kind):
        return scalars(kind, _float, {float})
    if types.is_string(kind):
        return scalars(kind, _text, {str})
    if types.is_boolean(kind):
        return scalars(kind, _bool, {bool})
    if types.is_binary(kind):
        return scalars(kind, _base64)
    if types.is_date32(kind):
        return scalars(kind, _date)
    if types.is_decimal(kind):
        return scalars(kind, partial(_decimal, kind=kind))
    if types.is_timestamp(kind):
        return scalars(kind, partial(_timestamp, local=kind.tz is None), {str}, partial(_timestamps, kind))
    raise SchemaError(f"no JSON is read as {kind}")


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError("expected true or false")
    return value


def _float(value: Any) -> float:
    if type(value) is str:
        if value not in NUMBERS:
            raise ValueError("expected a number")
        return NUMBERS[value]
    if type(value) not in (int, float, Decimal):
        raise TypeError("expected a number")
    return float(value)


def _text(value: Any) -> str:
    if type(value) is str:
        return utf8(value)
    return json.dumps(value, separators=(",", ":"), default=float)


def _base64(value: Any) -> bytes:
    return base64.b64decode(utf8(value), validate=True)


def _date(value: Any) -> date:
    return date.fromisoformat(utf8(value).strip())


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if type(value) not in (int, float, Decimal, str):
        raise TypeError("expected a number")
    if type(value) is int and value.bit_length() > 400:
        raise ValueError("too many digits")
    exact = Decimal(str(value))
    if not exact.is_finite() or exact.adjusted() >= kind.precision:
        raise ValueError(f"no number of {kind.precision - kind.scale} digits before the point")
    found = exact.quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
    if found and found.adjusted() >= kind.precision - kind.scale:
        raise ValueError(f"more than {kind.precision - kind.scale} digits before the point")
    return found


def _timestamps(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string()).cast(kind)


def _timestamp(value: Any, local: bool) -> int:
    if type(value) is int and not local:
        return integer(value * 1_000_000, 64)
    moment = datetime.fromisoformat(utf8(value).strip())
    if local and moment.tzinfo is not None:
        raise ValueError("expected a time without a zone")
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
