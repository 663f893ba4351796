"""Every attribute of a schema with a value of every JSON type: it is a schema, or refused as none, and never a failure.

What is taken can be written in every form, and be compared with what it was made of, both ways. For Protobuf each token
of a file is replaced instead.
"""
# ruff: noqa: E501

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.registry.schema_types import parsed
from ottla.registry.schema_types.parsed import InvalidSchema, Resolved

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 5, -1, 1.5, 10**30, "", "x", "a.b", "record", "#", "$", "int", [], [5], ["x"], [None], [{}], [[]],
    {}, {"x": 5}, {"type": 5}, {"type": "int"}, {"type": {"type": "int"}}, {"type": ["int"]}, {"items": {}},
)  # fmt: skip

RECORD = {
    "type": "record", "name": "A", "namespace": "n", "doc": "d", "aliases": ["B", "m.C"],
    "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"], "default": "X", "aliases": ["F"]}},
        {"name": "f", "type": {"type": "fixed", "name": "G", "size": 4, "logicalType": "decimal", "precision": 3, "scale": 1}},
        {"name": "u", "type": ["null", "string", "A"], "default": None, "doc": "d", "order": "ignore", "aliases": ["v"]},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis", "other": {"x": [1]}}},
        {"name": "b", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "r", "type": {"type": "error", "name": "R", "fields": []}},
    ],
    "own": {"property": True},
}  # fmt: skip
OBJECT = {
    "$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x/y", "title": "t", "description": "d",
    "type": "object", "required": ["a"], "minProperties": 1, "maxProperties": 9, "additionalProperties": {"type": "string"},
    "properties": {
        "a": {"type": ["string", "null"], "minLength": 1, "maxLength": 5, "pattern": "a+", "format": "date", "default": "x"},
        "n": {"type": "integer", "minimum": 1, "maximum": 7, "exclusiveMinimum": 0, "exclusiveMaximum": 9, "multipleOf": 2},
        "l": {"type": "array", "items": [{"type": "number"}], "additionalItems": False, "minItems": 1, "maxItems": 3,
              "uniqueItems": True, "contains": {"const": 1}},
        "o": {"oneOf": [{"enum": [1, "x", None]}, {"$ref": "#/definitions/D"}], "not": {"const": 7}},
        "c": {"if": {"type": "string"}, "then": {"minLength": 2}, "else": True, "allOf": [{"anyOf": [{"type": "null"}, True]}]},
    },
    "patternProperties": {"^x": {"type": "boolean"}}, "propertyNames": {"maxLength": 9},
    "dependencies": {"a": ["n"], "n": {"required": ["a"]}}, "definitions": {"D": {"type": "string", "examples": ["x"]}},
}  # fmt: skip
NEWER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://x/z", "type": "object",
    "properties": {
        "l": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"$ref": "#/$defs/D"}, "minContains": 1,
              "maxContains": 2, "contains": {"type": "string"}, "unevaluatedItems": False},
    },
    "dependentRequired": {"l": ["x"]}, "dependentSchemas": {"l": {"required": ["x"]}}, "unevaluatedProperties": {"type": "string"},
    "$defs": {"D": {"$anchor": "d", "type": "integer", "$dynamicAnchor": "e"}},
}  # fmt: skip
FILE = """
syntax = "proto3"; package p.q; import "google/protobuf/timestamp.proto"; option java_package = "x";
// a file
message M { reserved 5 to 7, 9; reserved "old"; string a = 1 [deprecated = true]; repeated int32 n = 2 [packed = false];
  map<string, N> m = 3; oneof c { bool x = 4; E e = 10; } optional bytes b = 11; google.protobuf.Timestamp t = 12;
  message N { M back = 1; } enum E { option allow_alias = true; Z = 0; Y = 0; reserved 7; X = -1; } }
service S { rpc Do (M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; } }
"""
TOKEN = re.compile(r'"[^"]*"|[\w.]+|[^\s\w]')
WORDS = (
    "0",
    "-1",
    "536870912",
    "99999999999999999999",
    '"x"',
    '""',
    "x",
    "M",
    "p.q.M",
    "message",
    "max",
    "{",
    "}",
    ";",
    "",
)


def mutants(tree: Any) -> Iterator[Any]:
    """The tree with each of its values replaced by each of `VALUES`, and without it."""
    for path in paths(tree):
        for value in VALUES:
            yield replaced(tree, path, value)
        yield without(tree, path)


def paths(tree: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from ((key, *rest) for rest in paths(tree[key]))


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.copy(tree)
    made[path[0]] = replaced(tree[path[0]], path[1:], value)
    return made


def without(tree: Any, path: tuple[Any, ...]) -> Any:
    if len(path) < 2:
        made = copy.copy(tree)
        if path:
            del made[path[0]]
        return made
    return replaced(tree, path[:1], without(tree[path[0]], path[1:]))


def used(kind: str, text: str, base: Any, references: list[Resolved]) -> bool:
    """Whether it is a schema, with which all is done that the registry does."""
    try:
        schema = parsed.parse(kind, text, references)
        for written in (schema.text, schema.normalized(), schema.resolved(), schema.formatted("serialized")):
            written.encode()
        for newer, older in ((schema, base), (base, schema)):
            for each in newer.differences(older):
                each.encode()
    except InvalidSchema:
        return False
    return True


@pytest.mark.filterwarnings("ignore::avro.errors.IgnoredLogicalType")
@pytest.mark.parametrize(("kind", "tree"), [("AVRO", RECORD), ("JSON", OBJECT), ("JSON", NEWER)])
def test_every_attribute_with_every_type(kind: str, tree: Any) -> None:
    base = parsed.parse(kind, json.dumps(tree))
    taken = [used(kind, json.dumps(each), base, []) for each in mutants(tree)]
    assert taken.count(True) > 50 and taken.count(False) > 100


@pytest.mark.filterwarnings("ignore::avro.errors.IgnoredLogicalType")
def test_every_attribute_of_what_is_referred_to() -> None:
    base = parsed.parse("AVRO", '{"type":"array","items":"n.A"}', [Resolved("n.A", json.dumps(RECORD))])
    for each in mutants(RECORD):
        used("AVRO", '{"type":"array","items":"n.A"}', base, [Resolved("n.A", json.dumps(each))])


def test_every_token_of_a_file() -> None:
    base = parsed.parse("PROTOBUF", FILE)
    places = [found.span() for found in TOKEN.finditer(FILE)]
    texts = [FILE[:start] + word + FILE[end:] for start, end in places[::3] for word in WORDS[::2]]
    texts += [FILE[:start] + word + FILE[end:] for start, end in places[1::3] for word in WORDS[1::2]]
    taken = [used("PROTOBUF", each, base, []) for each in texts]
    assert taken.count(True) > 20 and taken.count(False) > 100
