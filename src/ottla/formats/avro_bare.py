"""Avro schemas as fastavro sees them here. Needs no pyarrow."""

from __future__ import annotations

from typing import Any


def bare(schema: Any) -> Any:
    """The schema without logical types."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = bare(found[name])
    if isinstance(found.get("fields"), list):
        found["fields"] = [bare(each) for each in found["fields"]]
    return found
