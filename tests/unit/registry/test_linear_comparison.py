"""Comparing a schema with its successor takes work in proportion to its size: twice the fields, symbols, branches,
properties or messages are twice the work. Work is counted (calls, and comparisons of strings), not timed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla.registry.schema_types import avro_schema, json_schema, parsed
from ottla.registry.schema_types.parsed import Resolved

SIZE = 150
GROWTH_MAX = 2.4
"""Growth of the work where the size doubles; the square would be 4."""


class Work:
    """Calls of functions, and looks at the strings of a schema: comparisons, and places in a dict."""

    done = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            Work.done += 1


class Text(str):
    """A string of a schema."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Work.done += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Work.done += 1
        return str.__hash__(self)


def counted(tree: Any) -> Any:
    if isinstance(tree, str):
        return Text(tree)
    if isinstance(tree, list):
        return [counted(each) for each in tree]
    if isinstance(tree, dict):
        return {Text(name): counted(each) for name, each in tree.items()}
    return tree


def record(name: str, fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def field(number: int, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": f"f{number}", "type": kind, **more}


AVRO: dict[str, Callable[[int], Any]] = {
    "fields": lambda n: record("A", [field(each, "string", default="") for each in range(n)]),
    "fields by their aliases": lambda n: record(
        "A", [field(each, "int", default=0, aliases=[f"g{each}"]) for each in range(n)]
    ),
    "fields of types of their own": lambda n: record("A", [field(each, record(f"R{each}", [])) for each in range(n)]),
    "symbols": lambda n: {"type": "enum", "name": "E", "symbols": [f"S{each}" for each in range(n)], "default": "S0"},
    "branches": lambda n: ["null", *(record(f"R{each}", [field(0, "int")]) for each in range(n))],
    "branches by their aliases": lambda n: [
        {**record(f"R{each}", [field(0, "int")]), "aliases": [f"Q{each}"]} for each in range(n)
    ],
    "optional fields": lambda n: record("A", [field(each, ["null", record(f"R{each}", [])]) for each in range(n)]),
}
STRING = {"type": "string"}
JSON: dict[str, Callable[[int], Any]] = {
    "properties": lambda n: {"type": "object", "properties": {f"p{each}": STRING for each in range(n)}},
    "required": lambda n: {
        "type": "object", "properties": {f"p{each}": STRING for each in range(n)},
        "required": [f"p{each}" for each in range(n)],
    },
    "values": lambda n: {"enum": [f"v{each}" for each in range(n)]},
    "values of other types": lambda n: {"enum": [[each, {"a": f"v{each}"}] for each in range(n)]},
    "alternatives": lambda n: {
        "anyOf": [{"type": "object", "properties": {f"p{each}": STRING}} for each in range(n)]
    },
    "dependencies": lambda n: {"type": "object", "dependencies": {f"p{each}": [f"q{each}"] for each in range(n)}},
    "items": lambda n: {"type": "array", "items": [STRING for _ in range(n)]},
    "definitions": lambda n: {
        "type": "object", "properties": {f"p{each}": {"$ref": f"#/definitions/D{each}"} for each in range(n)},
        "definitions": {f"D{each}": {"type": "object", "properties": {"a": STRING}} for each in range(n)},
    },
}  # fmt: skip


def lines(n: int, line: str) -> str:
    return " ".join(line.replace("#", str(each)) for each in range(1, n + 1))


PROTOBUF: dict[str, Callable[[int], str]] = {
    "fields": lambda n: f"message M {{ {lines(n, 'string f# = #;')} }}",
    "oneofs": lambda n: f"message M {{ {lines(n, 'oneof o# { string f# = #; }')} }}",
    "fields of a oneof": lambda n: f"message M {{ oneof o {{ {lines(n, 'string f# = #;')} }} }}",
    "constants": lambda n: f"enum E {{ ZERO = 0; {lines(n, 'C# = #;')} }}",
    "messages": lambda n: lines(n, "message M# { string a = 1; }"),
    "fields of imported messages": lambda n: f"message M {{ {lines(n, 'o.I# f# = #;')} }}",
    "maps": lambda n: f"message M {{ {lines(n, 'map<string, int32> f# = #;')} }}",
}
HEAD = 'syntax = "proto3"; '


def schema(kind: str, made: Any, size: int) -> parsed.ParsedSchema:
    if kind != "PROTOBUF":
        return parsed.parse(kind, json.dumps(made(size)))
    imported = HEAD + "package o; " + lines(2 * SIZE + 1, "message I# { string a = 1; }")
    return parsed.parse(kind, HEAD + 'import "o.proto"; ' + made(size), [Resolved("o.proto", imported)])


def work(kind: str, made: Any, size: int) -> int:
    older, newer, other = schema(kind, made, size), schema(kind, made, size + 1), schema(kind, made, 1)
    Work.done = 0
    sys.setprofile(Work())
    try:
        for left, right in ((newer, older), (older, newer), (newer, other), (other, newer)):
            left.differences(right)
    finally:
        sys.setprofile(None)
    return Work.done


@pytest.mark.parametrize("what", AVRO)
def test_twice_the_size_is_twice_the_work_to_parse(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_schema, "json_of", lambda text: counted(json.loads(text)))
    works = []
    for size in (SIZE, 2 * SIZE):
        Work.done = 0
        schema("AVRO", AVRO[what], size)
        works.append(Work.done)
    assert works[1] < GROWTH_MAX * works[0], works


@pytest.mark.parametrize(
    ("kind", "what"),
    [(kind, what) for kind, cases in (("AVRO", AVRO), ("JSON", JSON), ("PROTOBUF", PROTOBUF)) for what in cases],
)
def test_twice_the_size_is_twice_the_work(kind: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (avro_schema, json_schema):
        monkeypatch.setattr(module, "json_of", lambda text: counted(json.loads(text)))
    cases: dict[str, dict[str, Any]] = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTOBUF}
    small, large = (work(kind, cases[kind][what], size) for size in (SIZE, 2 * SIZE))
    assert large > SIZE, "something was compared"
    assert large < GROWTH_MAX * small, (small, large)
