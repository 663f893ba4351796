"""Avro schemas to Arrow types, as Spark's `from_avro` maps them: a codec for each type, with how its values
are read and written.

fastavro sees the schema without its logical types (`bare`): times, dates and decimals stay numbers and bytes
until they are
Arrow columns, which is quicker and has no date that Python cannot hold. Unions: with null a nullable field,
int with long a
long, float with double a double, others a struct `member0`, `member1`, ... of which one is set.
Refused, with SchemaError: recursive types, unions whose branches Python's types do not tell apart, arrays
whose items take no
bytes (a few bytes could claim any number of them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from ottla.formats.avro_logical import logical
from ottla.formats.errors import SchemaError
from ottla.formats.nested import Bad, Build, array, integer, mapping, rows_of, scalars, struct, utf8

Raw = Callable[[pa.Array], list[Any]]


@dataclass(frozen=True)
class Codec:
    """One type: its Arrow type, values that fastavro read to a column, a column to what fastavro writes."""

    type: pa.DataType
    build: Build
    raw: Raw
    python: frozenset[type]
    """Types of the values that fastavro reads; they tell the branches of a union apart."""
    bytes_min: int


def _values(column: pa.Array) -> list[Any]:
    return column.to_pylist()  # type: ignore[no-any-return]


def _float(value: Any) -> float:
    return float(value)


def _bytes(value: Any) -> bytes:
    return bytes(value)


def _codec(kind: pa.DataType, one: Callable[[Any], Any], python: type, bytes_min: int) -> Codec:
    return Codec(kind, scalars(kind, one, {python}), _values, frozenset({python}), bytes_min)


PRIMITIVES = {
    "null": Codec(pa.null(), lambda values, rows, bad: pa.nulls(len(values)), _values, frozenset(), 0),
    "boolean": _codec(pa.bool_(), bool, bool, 1),
    "int": _codec(pa.int32(), partial(integer, bits=32), int, 1),
    "long": _codec(pa.int64(), partial(integer, bits=64), int, 1),
    "float": _codec(pa.float32(), _float, float, 4),
    "double": _codec(pa.float64(), _float, float, 8),
    "bytes": _codec(pa.binary(), _bytes, bytes, 1),
    "string": _codec(pa.string(), utf8, str, 1),
}


def codec_of(schema: Any) -> Codec:
    """The codec of a schema that fastavro's `parse_schema` has accepted in its bare form. Raises SchemaError."""
    return _Compiler().codec(schema, "")


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, Codec | None] = {}
        """Keyed by full name; None while it is looked at."""

    def codec(self, schema: Any, namespace: str) -> Codec:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return PRIMITIVES[schema] if schema in PRIMITIVES else self._known(schema, namespace)
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._name(schema, namespace)
        if kind == "array":
            return self._array(schema, namespace)
        if kind == "map":
            items = self.codec(schema["values"], namespace)
            whole, build = mapping(items.type, items.build)
            return Codec(whole, build, partial(_raw_map, items.raw), frozenset({dict}), 1)
        inner = self.codec(kind, namespace)
        return logical(schema, inner.type, Codec) or inner

    def _known(self, name: str, namespace: str) -> Codec:
        for full in (f"{namespace}.{name}", name):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise SchemaError(f"the Avro type {name!r} is recursive: recursive types cannot be columns")
                return found
        raise SchemaError(f"the Avro type {name!r} is not known")

    def _name(self, schema: dict[str, Any], namespace: str) -> Codec:
        name = schema["name"]
        if "." in name:
            namespace, full = name.rpartition(".")[0], name
        else:
            namespace = schema.get("namespace", namespace)
            full = f"{namespace}.{name}" if namespace else name
        self._named[full] = None
        if schema["type"] == "enum":
            found = PRIMITIVES["string"]
        elif schema["type"] == "fixed":
            size = int(schema["size"])
            found = logical(schema, pa.binary(), Codec) or _codec(pa.binary(), _bytes, bytes, size)
        else:
            found = self._record(schema, namespace)
        self._named[full] = found
        return found

    def _record(self, schema: dict[str, Any], namespace: str) -> Codec:
        fields = [(each["name"], self.codec(each["type"], namespace)) for each in schema["fields"]]
        whole, build = struct([(name, codec.type, codec.build) for name, codec in fields])
        raws = [(name, codec.raw) for name, codec in fields]
        return Codec(
            whole, build, partial(_raw_record, raws), frozenset({dict}), sum(codec.bytes_min for _, codec in fields)
        )

    def _array(self, schema: dict[str, Any], namespace: str) -> Codec:
        items = self.codec(schema["items"], namespace)
        if not items.bytes_min:
            raise SchemaError("Avro arrays whose items take no bytes are not supported")
        whole, build = array(items.type, items.build)
        return Codec(whole, build, partial(_raw_array, items.raw), frozenset({list}), 1)

    def _union(self, schema: list[Any], namespace: str) -> Codec:
        branches = [self.codec(each, namespace) for each in schema if each != "null"]
        if len(branches) == 1:
            (codec,) = branches
            # The number of the branch takes a byte.
            return Codec(codec.type, codec.build, codec.raw, codec.python, 1)
        for primitives, wide in (({"int", "long"}, "long"), ({"float", "double"}, "double")):
            if branches and {each for each in schema if each != "null" and isinstance(each, str)} == primitives:
                return PRIMITIVES[wide]
        kinds = [python for codec in branches for python in codec.python]
        if len(kinds) > len(set(kinds)):
            raise SchemaError("branches of an Avro union are encoded alike and cannot be told apart")
        if not branches:
            return PRIMITIVES["null"]
        members = [(f"member{index}", codec) for index, codec in enumerate(branches)]
        whole, build = struct([(name, codec.type, codec.build) for name, codec in members])
        name_of = {python: name for name, codec in members for python in codec.python}

        def of_branch(values: list[Any], rows: Any, bad: Bad) -> pa.Array:
            return build([None if value is None else {name_of[type(value)]: value} for value in values], rows, bad)

        raws = [(name, codec.raw) for name, codec in members]
        return Codec(whole, of_branch, partial(_raw_union, raws), frozenset(name_of), 1)


def _raw_record(fields: list[tuple[str, Raw]], column: pa.Array) -> list[Any]:
    names = [name for name, _ in fields]
    children = [raw(each) for (_, raw), each in zip(fields, column.flatten(), strict=True)]
    rows = zip(*children, strict=True) if children else [()] * len(column)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    if not column.null_count:
        return found
    return [row if there else None for row, there in zip(found, column.is_valid().to_pylist(), strict=True)]


def _raw_union(fields: list[tuple[str, Raw]], column: pa.Array) -> list[Any]:
    rows = _raw_record(fields, column)
    return [next((item for item in (row or {}).values() if item is not None), None) for row in rows]


def _raw_array(raw: Raw, column: pa.Array) -> list[Any]:
    offsets, there = rows_of(column)
    items = raw(column.values)
    return [items[offsets[at] : offsets[at + 1]] if there[at] else None for at in range(len(column))]


def _raw_map(raw: Raw, column: pa.Array) -> list[Any]:
    offsets, there = rows_of(column)
    pairs = list(zip(column.keys.to_pylist(), raw(column.items), strict=True))
    return [dict(pairs[offsets[at] : offsets[at + 1]]) if there[at] else None for at in range(len(column))]
