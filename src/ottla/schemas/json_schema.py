"""JSON Schemas of a registry to Arrow types and back.

An object with properties is a struct, one with additionalProperties a map; of several types, or of alternatives, null
is left out, and what else remains several is a string that holds the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ottla.formats.errors import SchemaError

DEPTH_MAX = 64
"""Depth of nested types: a schema that refers to itself has no end."""


def type_of(text: str, parts: Iterable[tuple[str, str]] = ()) -> pa.DataType:
    """Raises SchemaError for an invalid or recursive JSON Schema."""
    try:
        schema = json.loads(text)
        others = {name: json.loads(each) for name, each in parts}
    except ValueError as error:
        raise SchemaError(f"not a JSON Schema: {error}") from error
    return _of(schema, schema, others, 0)


def _of(schema: Any, root: Any, others: Mapping[str, Any], depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise SchemaError("the JSON Schema holds itself: recursive types have no columns")
    if not isinstance(schema, dict):
        return pa.string()
    if "$ref" in schema:
        target, inside = _referred(str(schema["$ref"]), root, others)
        return _of(target, inside, others, depth + 1)
    for name in ("oneOf", "anyOf"):
        if name in schema and "properties" not in schema:
            left = [each for each in schema[name] if not (isinstance(each, dict) and each.get("type") == "null")]
            return _of(left[0], root, others, depth + 1) if len(left) == 1 else pa.string()
    kinds = schema.get("type")
    if isinstance(kinds, list):
        left = [each for each in kinds if each != "null"]
        if set(left) == {"integer", "number"}:
            left = ["number"]
        kinds = left[0] if len(left) == 1 else None
    if kinds == "object" or (kinds is None and "properties" in schema):
        return _object(schema, root, others, depth)
    if kinds == "array":
        return pa.list_(_of(schema.get("items"), root, others, depth + 1))
    if kinds == "string":
        return _string(schema)
    return {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}.get(str(kinds), pa.string())


def _object(schema: dict[str, Any], root: Any, others: Mapping[str, Any], depth: int) -> pa.DataType:
    if "properties" in schema:
        properties = schema["properties"].items()
        return pa.struct([(name, _of(each, root, others, depth + 1)) for name, each in properties])
    return pa.map_(pa.string(), _of(schema.get("additionalProperties"), root, others, depth + 1))


def _string(schema: dict[str, Any]) -> pa.DataType:
    if schema.get("contentEncoding") == "base64":
        return pa.binary()
    kinds = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
    return kinds.get(schema.get("format", ""), pa.string())


def _referred(name: str, root: Any, others: Mapping[str, Any]) -> tuple[Any, Any]:
    """(the schema that is meant, the document in which its own references are looked up)."""
    document, _, pointer = name.partition("#")
    inside = root if not document or document == root.get("$id") else others.get(document)
    if inside is None:
        inside = next(
            (each for each in others.values() if isinstance(each, dict) and each.get("$id") == document), None
        )
    target = inside
    for step in pointer.strip("/").split("/") if pointer.strip("/") else ():
        step = step.replace("~1", "/").replace("~0", "~")
        target = target.get(step) if isinstance(target, dict) else None
    if target is None:
        raise SchemaError(f"the JSON Schema refers to {name!r}, which is not there")
    return target, inside


def derived(kind: pa.DataType, name: str) -> str:
    """The JSON Schema (draft 7) of what `JsonValues` writes for an Arrow type. Raises SchemaError."""
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_schema(kind)})


def _schema(kind: pa.DataType) -> dict[str, Any]:
    types = pa.types
    if types.is_boolean(kind):
        return {"type": "boolean"}
    if types.is_integer(kind):
        return {"type": "integer"}
    if types.is_floating(kind):
        return {"type": "number"}
    if types.is_decimal(kind):
        return {"type": "number"}
    if types.is_string(kind):
        return {"type": "string"}
    if types.is_binary(kind):
        return {"type": "string", "contentEncoding": "base64"}
    if types.is_timestamp(kind):
        return {"type": "string", "format": "date-time"} if kind.tz else {"type": "string"}
    if types.is_date(kind):
        return {"type": "string", "format": "date"}
    if types.is_struct(kind):
        # A field with null is not written: `JsonValues` leaves it out, as Spark does.
        properties = {each.name: _schema(each.type) for each in kind}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if types.is_list(kind):
        return {"type": "array", "items": _nullable(_schema(kind.value_type))}
    if types.is_map(kind):
        return {"type": "object", "additionalProperties": _nullable(_schema(kind.item_type))}
    raise SchemaError(f"{kind} has no type in JSON")


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]}
