"""Every kind of change between two Protobuf files, and whether what was written stays readable.

The rules are those of Confluent's registry, which follow "Updating A Message Type" of the language's guide.
"""

from __future__ import annotations

import pytest

from ottla.registry.schema_types import protobuf_diff
from ottla.registry.schema_types.parsed import Resolved
from ottla.registry.schema_types.protobuf_schema import ProtobufSchema

INCOMPATIBLE = {
    "PACKAGE_CHANGED", "MESSAGE_REMOVED", "FIELD_KIND_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED",
    "FIELD_NUMERIC_LABEL_CHANGED", "REQUIRED_FIELD_ADDED", "REQUIRED_FIELD_REMOVED", "ONEOF_FIELD_REMOVED",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "FIELD_MOVED_TO_EXISTING_ONEOF",
}  # fmt: skip

NUMBERS = ("int32", "int64", "uint32", "uint64", "bool")
KINDS = (NUMBERS, ("sint32", "sint64"), ("fixed32", "sfixed32"), ("fixed64", "sfixed64"), ("float",), ("double",),
         ("string", "bytes"))  # fmt: skip
"""Scalars that may take each other's place."""


def m(body: str) -> str:
    return f"message M {{ {body} }}"


CHANGES: dict[str, tuple[str, str, list[str]]] = {
    "nothing": (m("int32 a = 1;"), m("int32 a = 1;"), []),
    "the package": ("package a; message M {}", "package b; message M {}", ["PACKAGE_CHANGED #/"]),
    "a package": ("message M {}", "package b; message M {}", ["PACKAGE_CHANGED #/"]),
    # messages
    "a message added": (m(""), m("") + "message N {}", ["MESSAGE_ADDED #/N"]),
    "a message removed": (m("") + "message N {}", m(""), ["MESSAGE_REMOVED #/N"]),
    "messages in another order": (
        "message A {} message B {}", "message B {} message A {}", ["MESSAGE_MOVED #/A", "MESSAGE_MOVED #/B"]
    ),
    "a message within another": (m(""), m("message N {}"), ["MESSAGE_ADDED #/M/N"]),
    "a message within another removed": (m("message N {}"), m(""), ["MESSAGE_REMOVED #/M/N"]),
    "a field of a message within another": (
        m("message N { int32 a = 1; }"), m("message N { string a = 1; }"), ["FIELD_SCALAR_KIND_CHANGED #/M/N/1"]
    ),
    # enums
    "an enum added": (m(""), m("") + "enum E { Z = 0; }", ["ENUM_ADDED #/E"]),
    "an enum removed": (m("") + "enum E { Z = 0; }", m(""), ["ENUM_REMOVED #/E"]),
    "a constant added": ("enum E { Z = 0; }", "enum E { Z = 0; A = 1; }", ["ENUM_CONST_ADDED #/E/1"]),
    "a constant removed": ("enum E { Z = 0; A = 1; }", "enum E { Z = 0; }", ["ENUM_CONST_REMOVED #/E/1"]),
    "a constant renamed": ("enum E { Z = 0; A = 1; }", "enum E { Z = 0; B = 1; }", ["ENUM_CONST_CHANGED #/E/1"]),
    # fields
    "a field added": (m(""), m("int32 a = 1;"), ["FIELD_ADDED #/M/1"]),
    "a field removed": (m("int32 a = 1;"), m(""), ["FIELD_REMOVED #/M/1"]),
    "a field renamed": (m("int32 a = 1;"), m("int32 b = 1;"), ["FIELD_NAME_CHANGED #/M/1"]),
    "a field with another number": (
        m("int32 a = 1;"), m("int32 a = 2;"), ["FIELD_REMOVED #/M/1", "FIELD_ADDED #/M/2"]
    ),
    "a message in place of a scalar": (m("int32 a = 1;"), m("M a = 1;"), ["FIELD_KIND_CHANGED #/M/1"]),
    "a map in place of a message": (m("M a = 1;"), m("map<string, M> a = 1;"), ["FIELD_KIND_CHANGED #/M/1"]),
    "an enum in place of a number": (
        "enum E { Z = 0; }" + m("int32 a = 1;"), "enum E { Z = 0; }" + m("E a = 1;"), []
    ),
    "an enum in place of text": (
        "enum E { Z = 0; }" + m("string a = 1;"), "enum E { Z = 0; }" + m("E a = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    "another message": (
        "message A {} message B {}" + m("A a = 1;"), "message A {} message B {}" + m("B a = 1;"),
        ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
    ),
    "numbers repeated": (m("int32 a = 1;"), m("repeated int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"]),
    "numbers not repeated": (m("repeated int32 a = 1;"), m("int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"]),
    "texts repeated": (
        m("string a = 1;"), m("repeated string a = 1;"), ["FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"]
    ),
    "presence of a number": (m("int32 a = 1;"), m("optional int32 a = 1;"), []),
    "values of a map": (
        m("map<string, int32> a = 1;"), m("map<string, string> a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]
    ),
    "values of a map alike": (m("map<string, int32> a = 1;"), m("map<string, int64> a = 1;"), []),
    "keys of a map": (
        m("map<string, int32> a = 1;"), m("map<int32, int32> a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]
    ),
    # oneofs
    "a oneof added": (
        m(""), m("oneof o { int32 a = 1; int32 b = 2; }"),
        ["ONEOF_ADDED #/M/o", "ONEOF_FIELD_ADDED #/M/o/1", "ONEOF_FIELD_ADDED #/M/o/2"],
    ),
    "a oneof removed": (m("oneof o { int32 a = 1; int32 b = 2; }"), m(""), ["ONEOF_REMOVED #/M/o"]),
    "a oneof renamed": (
        m("oneof o { int32 a = 1; }"), m("oneof p { int32 a = 1; }"), ["ONEOF_REMOVED #/M/o", "ONEOF_ADDED #/M/p"]
    ),
    "a field of a oneof added": (
        m("oneof o { int32 a = 1; }"), m("oneof o { int32 a = 1; int32 b = 2; }"), ["ONEOF_FIELD_ADDED #/M/o/2"]
    ),
    "a field of a oneof removed": (
        m("oneof o { int32 a = 1; int32 b = 2; }"), m("oneof o { int32 a = 1; }"), ["ONEOF_FIELD_REMOVED #/M/o/2"]
    ),
    "a field out of a oneof": (
        m("oneof o { int32 a = 1; int32 b = 2; }"), m("oneof o { int32 a = 1; } int32 b = 2;"),
        ["ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/2"],
    ),
    "a field into a new oneof": (m("int32 a = 1;"), m("oneof o { int32 a = 1; }"), ["ONEOF_ADDED #/M/o"]),
    "a field into an existing oneof": (
        m("oneof o { int32 a = 1; } int32 b = 2;"), m("oneof o { int32 a = 1; int32 b = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
    ),
    "several fields into a oneof": (
        m("int32 a = 1; int32 b = 2;"), m("oneof o { int32 a = 1; int32 b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o", "ONEOF_ADDED #/M/o"],
    ),
    "two oneofs in one": (
        m("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"), m("oneof o { int32 a = 1; int32 b = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o", "ONEOF_REMOVED #/M/p"],
    ),
    "the type of a field in a oneof": (
        m("oneof o { int32 a = 1; }"), m("oneof o { string a = 1; }"), ["FIELD_SCALAR_KIND_CHANGED #/M/o/1"]
    ),
    # proto2
    "a required field added": (
        'syntax = "proto2";' + m(""), 'syntax = "proto2";' + m("required int32 a = 1;"), ["REQUIRED_FIELD_ADDED #/M/1"]
    ),
    "a required field removed": (
        'syntax = "proto2";' + m("required int32 a = 1;"), 'syntax = "proto2";' + m(""),
        ["REQUIRED_FIELD_REMOVED #/M/1"],
    ),
    "a number becomes required": (
        'syntax = "proto2";' + m("optional int32 a = 1;"), 'syntax = "proto2";' + m("required int32 a = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
    ),
    # what is not compared
    "services": (
        m("") + "service S { rpc A (M) returns (M); }", m("") + "service S { rpc B (M) returns (stream M); }", []
    ),
    "options": (m("int32 a = 1;"), 'option java_package = "p";' + m("int32 a = 1 [deprecated = true];"), []),
}  # fmt: skip
CHANGES |= {
    f"{new} in place of {old}": (
        m(f"{old} a = 1;"),
        m(f"{new} a = 1;"),
        [] if any(old in kind and new in kind for kind in KINDS) else ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    )
    for old in (name for kind in KINDS for name in kind)
    for new in (name for kind in KINDS for name in kind)
}


def schema(text: str, *references: Resolved) -> ProtobufSchema:
    return ProtobufSchema(text if text.startswith("syntax") else f'syntax = "proto3"; {text}', references)


@pytest.mark.parametrize("name", CHANGES)
def test_change(name: str) -> None:
    old, new, expected = CHANGES[name]
    before, after = schema(old), schema(new)
    found = protobuf_diff.compare(before.file, before.others, after.file, after.others)
    assert sorted(f"{each.kind} {each.path}" for each in found) == sorted(expected)
    messages = after.differences(before)
    assert len(messages) == sum(each.partition(" ")[0] in INCOMPATIBLE for each in expected)
    assert all(message.count("%s") == 2 for message in messages)


def test_every_kind_of_change_has_a_case() -> None:
    tested = {each.partition(" ")[0] for _, _, changes in CHANGES.values() for each in changes}
    assert tested == INCOMPATIBLE | protobuf_diff.COMPATIBLE
    assert not INCOMPATIBLE & protobuf_diff.COMPATIBLE


USES = 'syntax = "proto3"; import "in.proto"; message M { i.In in = 1; repeated i.In more = 2; }'


def imported(body: str) -> Resolved:
    return Resolved("in.proto", f'syntax = "proto3"; package i; message In {{ {body} }}')


def test_messages_of_other_files_are_compared_where_they_are_used() -> None:
    old, new = schema(USES, imported("int32 a = 1;")), schema(USES, imported("string a = 1;"))
    found = protobuf_diff.compare(old.file, old.others, new.file, new.others)
    assert [f"{each.kind} {each.path}" for each in found] == [
        "FIELD_SCALAR_KIND_CHANGED #/In/1",
        "FIELD_NAMED_TYPE_CHANGED #/M/1",
        "FIELD_NAMED_TYPE_CHANGED #/M/2",
    ]
    wider = schema(USES, imported("int64 a = 1; int32 b = 2;"))
    assert wider.differences(old) == []


def test_a_message_may_move_into_another_file_of_another_package() -> None:
    inside = schema("message In { int32 a = 1; }" + m("In in = 1;"))
    outside = schema('import "in.proto"; message In {} message M { i.In in = 1; }', imported("int32 a = 1;"))
    assert outside.differences(inside) == []


def test_what_contains_itself_in_another_file() -> None:
    old, new = (schema(USES, imported(f"{kind} a = 1; In next = 2;")) for kind in ("int32", "int64"))
    assert new.differences(old) == []
