"""Avro schemas that Arrow types are written with."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ottla.formats.errors import SchemaError


def derived(kind: pa.DataType, name: str) -> str:
    """The Avro schema of an Arrow type, as Spark's SchemaConverters has it: nullable fields, records named by where
    they are. Raises SchemaError."""
    return json.dumps(_of(kind, name))


def _of(kind: pa.DataType, name: str) -> Any:
    types = pa.types
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if types.is_time(kind):
        return {"type": "long", "logicalType": "time-micros"}
    if types.is_struct(kind):
        fields = [
            {"name": each.name, "type": ["null", _of(each.type, f"{name}_{each.name}")], "default": None}
            for each in kind
        ]
        return {"type": "record", "name": name, "fields": fields}
    if types.is_list(kind) or types.is_large_list(kind):
        return {"type": "array", "items": ["null", _of(kind.value_type, name)]}
    if types.is_map(kind):
        return {"type": "map", "values": ["null", _of(kind.item_type, name)]}
    raise SchemaError(f"{kind} has no type in Avro")


_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}
