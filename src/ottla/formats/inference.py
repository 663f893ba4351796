"""What type JSON texts have, judged by a sample of them: for people who ask a topic that nobody gave a schema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

DEPTH_MAX = 20
"""Objects within objects; what is deeper stays text."""
_INT64 = range(-(2**63), 2**63)


def type_of_json(values: Iterable[bytes | None]) -> pa.DataType:
    """The narrowest type that every value of the sample can be read as, by `JsonValues`.

    Whole numbers are int64 and with others among them float64; what has values of different kinds is text, as is what
    was never anything but null. Values that are no JSON have no say.
    """
    found: pa.DataType = pa.null()
    for value in values:
        if value is None:
            continue
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            continue
        found = _merged(found, _type_of(read, DEPTH_MAX))
    return _settled(found)


def _type_of(value: Any, depth: int) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if value in _INT64 else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str) or not depth:
        return pa.string()
    if isinstance(value, list):
        items: pa.DataType = pa.null()
        for item in value:
            items = _merged(items, _type_of(item, depth - 1))
        return pa.list_(items)
    return pa.struct([(name, _type_of(item, depth - 1)) for name, item in value.items()])


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    if types.is_list(one) and types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type))
    return pa.float64() if {one, other} == {pa.int64(), pa.float64()} else pa.string()


def _settled(kind: pa.DataType) -> pa.DataType:
    """Text for what is not known, and for objects without members, which no table can hold."""
    types = pa.types
    if types.is_null(kind) or (types.is_struct(kind) and not kind.num_fields):
        return pa.string()
    if types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type)) for field in kind])
    return kind
