"""Avro schemas with references, made whole. Needs no pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ottla.formats.errors import SchemaError

NAMED = ("record", "error", "enum", "fixed")
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def whole(text: str, parts: Iterable[tuple[str, str]]) -> str:
    """The schema with referenced types inserted where they are first named. Raises SchemaError."""
    try:
        known: dict[str, Any] = {}
        for _, each in parts:
            _collect(json.loads(each), "", known)
        return json.dumps(_filled(json.loads(text), "", known, set())) if known else text
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error


def _full(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    name = str(schema["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = schema.get("namespace", namespace) or ""
    return (f"{inner}.{name}" if inner else name), inner


def _collect(schema: Any, namespace: str, known: dict[str, Any]) -> None:
    """Types that a schema defines, by their full names, with a namespace of their own."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, namespace, known)
    elif isinstance(schema, dict):
        if schema.get("type") in NAMED:
            full, namespace = _full(schema, namespace)
            known[full] = schema | {"name": full.rpartition(".")[2], "namespace": namespace}
        for each in schema.get("fields", ()):
            _collect(each["type"], namespace, known)
        for name in ("items", "values", "type"):
            if isinstance(schema.get(name), list | dict):
                _collect(schema[name], namespace, known)


def _filled(schema: Any, namespace: str, known: dict[str, Any], done: set[str]) -> Any:
    if isinstance(schema, list):
        return [_filled(each, namespace, known, done) for each in schema]
    if isinstance(schema, str):
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        full = full if full in known or full in done else schema
        if schema in PRIMITIVES or full in done or full not in known:
            return full if full in done else schema
        return _filled(known[full], "", known, done)
    found = dict(schema)
    if found.get("type") in NAMED:
        full, namespace = _full(found, namespace)
        if full in done:
            return full
        done.add(full)
        if "fields" in found:
            found["fields"] = [
                each | {"type": _filled(each["type"], namespace, known, done)} for each in found["fields"]
            ]
        return found
    for name in ("items", "values", "type"):
        if name in found and found[name] not in ("array", "map"):
            found[name] = _filled(found[name], namespace, known, done)
    return found
