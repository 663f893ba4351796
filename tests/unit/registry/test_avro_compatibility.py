"""Every rule of Avro's schema resolution (specification 1.12, "Schema Resolution"), and what is said of a breach.

Avro's own checker in Python (`avro.compatibility`) has to decide the same, but where the table says that it is wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import avro.compatibility
import avro.schema
import pytest

from ottla.registry.schema_types import avro_compatibility
from ottla.registry.schema_types.avro_schema import AvroSchema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {
    ("long", "int"), ("float", "int"), ("float", "long"), ("double", "int"), ("double", "long"), ("double", "float"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
"""(reader, writer) of the specification."""


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


@dataclass(frozen=True)
class Rule:
    """What a reader makes of a writer: differences as `KIND path`, none where it can read it."""

    reader: Any
    writer: Any
    differences: tuple[str, ...] = ()
    library_is_wrong: bool = False


LIST = {"type": "record", "name": "L", "fields": [field("v", "int"), field("next", ["null", "L"])]}
LONGS = {"type": "record", "name": "L", "fields": [field("v", "long"), field("next", ["null", "L"])]}

RULES: dict[str, Rule] = {
    # records
    "the same record": Rule(record(field("a", "int")), record(field("a", "int"))),
    "fields in another order": Rule(
        record(field("a", "int"), field("b", "int")), record(field("b", "int"), field("a", "int"))
    ),
    "a field that the reader has not is ignored": Rule(record(), record(field("a", "int"))),
    "a new field with a default": Rule(record(field("a", "int", default=1)), record()),
    "a new field with a default of null": Rule(record(field("a", ["null", "int"], default=None)), record()),
    "a new field without a default": Rule(
        record(field("a", "int")), record(), ("READER_FIELD_MISSING_DEFAULT_VALUE /fields/0",)
    ),
    "a new field of an enum whose type has a default": Rule(
        record(field("e", enum("A", default="A"))), record(), ("READER_FIELD_MISSING_DEFAULT_VALUE /fields/0",)
    ),
    "a field renamed with an alias": Rule(record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
    "a field renamed without one": Rule(
        record(field("b", "int")), record(field("a", "int")), ("READER_FIELD_MISSING_DEFAULT_VALUE /fields/0",)
    ),
    "the name itself goes before an alias": Rule(
        record(field("b", "int", aliases=["a"])), record(field("a", "string"), field("b", "int"))
    ),
    "a field's type changes": Rule(
        record(field("a", "int")), record(field("a", "string")), ("TYPE_MISMATCH /fields/0/type",)
    ),
    "a field's type is promoted": Rule(record(field("a", "long")), record(field("a", "int"))),
    "another name": Rule(record(name="S"), record(), ("NAME_MISMATCH /name",)),
    "another namespace only": Rule(record(name="x.R"), record(name="y.R")),
    "a record renamed with an alias in full": Rule(record(name="x.S", aliases=["y.R"]), record(name="y.R")),
    "an alias without a namespace is in that of the schema": Rule(
        record(name="x.S", aliases=["R"]), record(name="x.R"), library_is_wrong=True
    ),
    "an alias in another namespace": Rule(
        record(name="x.S", aliases=["R"]), record(name="y.R"), ("NAME_MISMATCH /name",)
    ),
    "a field deep inside": Rule(
        record(field("a", record(field("b", "int"), name="In"))),
        record(field("a", record(field("b", "string"), name="In"))),
        ("TYPE_MISMATCH /fields/0/type/fields/0/type",),
    ),
    "all that is wrong is found": Rule(
        record(field("a", "int"), field("b", "int"), name="S"),
        record(field("a", "string")),
        ("NAME_MISMATCH /name", "TYPE_MISMATCH /fields/0/type", "READER_FIELD_MISSING_DEFAULT_VALUE /fields/1"),
    ),
    "a record in place of a primitive": Rule(record(), "int", ("TYPE_MISMATCH /",)),
    "a primitive in place of a record": Rule("int", record(), ("TYPE_MISMATCH /",)),
    # records that contain themselves
    "a list": Rule(LIST, LIST),
    "a list of what is promoted": Rule(LONGS, LIST),
    "a list of what is not": Rule(LIST, LONGS, ("TYPE_MISMATCH /fields/0/type",)),
    # enums
    "the same enum": Rule(enum("A", "B"), enum("A", "B")),
    "symbols in another order": Rule(enum("B", "A"), enum("A", "B")),
    "a symbol more": Rule(enum("A", "B"), enum("A")),
    "a symbol less": Rule(enum("A"), enum("A", "B"), ("MISSING_ENUM_SYMBOLS /symbols",)),
    "a symbol less, with a default": Rule(enum("A", default="A"), enum("A", "B")),
    "an enum of another name": Rule(enum("A", name="D"), enum("A"), ("NAME_MISMATCH /name",)),
    "an enum renamed with an alias": Rule(enum("A", name="D", aliases=["E"]), enum("A")),
    "an enum as a string": Rule("string", enum("A"), ("TYPE_MISMATCH /",)),
    # fixed
    "the same fixed": Rule(fixed(4), fixed(4)),
    "another size": Rule(fixed(4), fixed(8), ("FIXED_SIZE_MISMATCH /size",)),
    "another name of a fixed": Rule(fixed(4, name="G"), fixed(4), ("NAME_MISMATCH /name",)),
    "a fixed renamed with an alias": Rule(fixed(4, name="G", aliases=["F"]), fixed(4)),
    "another name and size": Rule(fixed(4, name="G"), fixed(8), ("NAME_MISMATCH /name", "FIXED_SIZE_MISMATCH /size")),
    "a fixed as bytes": Rule("bytes", fixed(4), ("TYPE_MISMATCH /",)),
    # arrays and maps
    "the same array": Rule(array("int"), array("int")),
    "items are promoted": Rule(array("long"), array("int")),
    "items are not": Rule(array("int"), array("long"), ("TYPE_MISMATCH /items",)),
    "the same map": Rule(mapping("int"), mapping("int")),
    "values are promoted": Rule(mapping("double"), mapping("float")),
    "values are not": Rule(mapping("float"), mapping("double"), ("TYPE_MISMATCH /values",)),
    "a map in place of an array": Rule(mapping("int"), array("int"), ("TYPE_MISMATCH /",)),
    # unions
    "the same union": Rule(["null", "int"], ["null", "int"]),
    "branches in another order": Rule(["int", "null"], ["null", "int"]),
    "a branch more": Rule(["null", "int", "string"], ["null", "int"]),
    "a branch less": Rule(["null"], ["null", "int"], ("MISSING_UNION_BRANCH /1",)),
    "a union that becomes one": Rule(["null", "int"], "int"),
    "promoted into a branch": Rule(["null", "long"], "int"),
    "what becomes a union without it": Rule(["null", "boolean"], "int", ("MISSING_UNION_BRANCH /",)),
    "a union read by all of its branches": Rule("double", ["int", "float"]),
    "a union read by one of its branches": Rule("int", ["null", "int"], ("TYPE_MISMATCH /",)),
    "an empty union is read by anything": Rule("int", []),
    "an empty union reads nothing": Rule([], "int", ("MISSING_UNION_BRANCH /",)),
    "a record of a union by its name": Rule(
        [record(name="A"), record(field("x", "int"), name="B")], record(field("x", "int"), name="B")
    ),
    "a record of a union that has changed": Rule(
        [record(field("x", "int"), name="B")], record(name="B"), ("MISSING_UNION_BRANCH /",)
    ),
    "within a field": Rule(
        record(field("u", ["null", "int"])), record(field("u", ["null", "string"])),
        ("MISSING_UNION_BRANCH /fields/0/type/1",),
    ),
    # logical types do not count
    "a logical type more": Rule({"type": "long", "logicalType": "timestamp-millis"}, "long"),
    "another logical type": Rule(
        {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"}
    ),
}  # fmt: skip
RULES |= {
    f"{writer} read as {reader}": Rule(
        reader,
        writer,
        () if reader == writer or (reader, writer) in PROMOTED else ("TYPE_MISMATCH /",),
    )
    for reader in PRIMITIVES
    for writer in PRIMITIVES
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    rule = RULES[name]
    reader, writer = AvroSchema(json.dumps(rule.reader), ()), AvroSchema(json.dumps(rule.writer), ())
    found = avro_compatibility.differences(reader.schema, writer.schema)
    assert tuple(f"{each.kind} {each.path}" for each in found) == rule.differences


@pytest.mark.parametrize("name", RULES)
def test_avros_own_checker_agrees(name: str) -> None:
    rule = RULES[name]
    checker = avro.compatibility.ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    reader, writer = (avro.schema.parse(json.dumps(each)) for each in (rule.reader, rule.writer))
    result = checker.get_compatibility(reader, writer)
    says = result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible
    assert (says == (not rule.differences)) != rule.library_is_wrong


def test_what_is_said() -> None:
    reader = AvroSchema(json.dumps(record(field("a", "int"), field("e", enum("A")))), ())
    writer = AvroSchema(json.dumps(record(field("e", enum("A", "B", "C")))), ())
    assert reader.differences(writer) == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'a' at path '/fields/0' in the %s "
        "schema has no default value and is missing in the %s schema', additionalInfo:'a'}",
        "{errorType:'MISSING_ENUM_SYMBOLS', description:'The %s schema is missing enum symbols '[B, C]' at path "
        "'/fields/1/type/symbols' in the %s schema', additionalInfo:'[B, C]'}",
    ]


def test_schemas_that_contain_each_other_take_no_time() -> None:
    names = [f"R{number}" for number in range(12)]
    kinds = ["null", *names]

    def tree(kind: str) -> Any:
        """All but the first are defined within the first."""
        defined: set[str] = set()

        def build(name: str) -> Any:
            if name in defined or name == "null":
                return name
            defined.add(name)
            return record(
                field("v", kind), *(field(f"f{n}", [build(each) for each in kinds]) for n in range(2)), name=name
            )

        return build(names[0])

    ints, longs = (AvroSchema(json.dumps(tree(kind)), ()) for kind in ("int", "long"))
    assert longs.differences(ints) == []
    assert ints.differences(longs) != []
