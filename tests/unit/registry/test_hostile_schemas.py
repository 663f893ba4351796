"""Texts that are no schema, or that no other registry could read, are refused with a reason."""

from __future__ import annotations

import json

import pytest

from ottla.registry.schema_types import parsed
from ottla.registry.schema_types.parsed import InvalidSchema, Resolved

FIELD = '{"type":"record","name":"A","fields":[{"name":"a","type":"double","default":%s}]}'
PROTO = 'syntax = "proto3"; message M { string a = 1; }'


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have(number: str) -> None:
    with pytest.raises(InvalidSchema, match="no number"):
        parsed.parse("AVRO", FIELD % number)
    with pytest.raises(InvalidSchema, match="no number"):
        parsed.parse("JSON", f'{{"enum": [{number}]}}')


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
@pytest.mark.parametrize("text", ["", "\0", "[" * 100_000, '{"type":"array","items":' * 3000 + '"int"' + "}" * 3000])
def test_no_schema_of_any_kind(kind: str, text: str) -> None:
    if kind == "PROTOBUF" and text == "":
        return  # a file without a message
    with pytest.raises(InvalidSchema):
        parsed.parse(kind, text)


def test_half_a_surrogate_pair() -> None:
    text = '{"type":"record","name":"A","doc":"\\ud800","fields":[]}'
    with pytest.raises(InvalidSchema, match="surrogate"):
        parsed.parse("AVRO", text)
    with pytest.raises(InvalidSchema):
        parsed.parse("PROTOBUF", PROTO + " // \ud800")


@pytest.mark.parametrize("schema", [{"$schema": 7}, {"$id": 7}, {"$ref": "file:///etc/passwd"}, {"$ref": "#"}, []])
def test_no_json_schema(schema: object) -> None:
    with pytest.raises(InvalidSchema):
        parsed.parse("JSON", json.dumps(schema))


@pytest.mark.parametrize("name", ["../x.proto", "/tmp/x.proto", "a/../../x.proto", "a\\b", "", "a\0b", "x" * 300])
def test_a_name_that_leads_out_of_the_directory(name: str) -> None:
    with pytest.raises(InvalidSchema, match="cannot be imported"):
        parsed.parse("PROTOBUF", PROTO, [Resolved(name, PROTO)])


def test_a_file_that_would_be_a_directory_as_well() -> None:
    with pytest.raises(InvalidSchema, match="cannot be imported"):
        parsed.parse("PROTOBUF", PROTO, [Resolved("x", PROTO), Resolved("x/y", PROTO)])


@pytest.mark.parametrize("imported", ["/etc/passwd", "../../etc/passwd", "google/protobuf/../../../etc/passwd"])
def test_imports_of_files_from_elsewhere(imported: str) -> None:
    with pytest.raises(InvalidSchema, match="was not found"):
        parsed.parse("PROTOBUF", f'syntax = "proto3"; import "{imported}"; message M {{}}')


def test_a_message_that_is_too_large() -> None:
    fields = "".join(f"string f{number} = {number};" for number in range(1, 18_000))
    with pytest.raises(InvalidSchema, match="exceeded"):
        _ = parsed.parse("PROTOBUF", f'syntax = "proto3"; message M {{ {fields} }}').text
