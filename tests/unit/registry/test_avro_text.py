"""Avro's canonical text is that of Java's library: what it leaves out, its order, its names."""

from __future__ import annotations

import json

import pytest

from ottla.registry.schema_types.parsed import InvalidSchema, Resolved, parse

CASES = {
    "white space": ('  "string" ', '"string"'),
    "a bare name": ("string", '"string"'),
    "a primitive as an object": ('{"type": "string"}', '"string"'),
    "properties of a primitive stay": (
        '{"logicalType": "date", "type": "int"}',
        '{"type":"int","logicalType":"date"}',
    ),
    "order of a record's members": (
        '{"fields": [], "doc": "d", "name": "R", "type": "record", "namespace": "n", "x": 1, "aliases": ["Q"]}',
        '{"type":"record","name":"R","namespace":"n","doc":"d","fields":[],"x":1,"aliases":["Q"]}',
    ),
    "a full name is taken apart": (
        '{"type": "record", "name": "a.b.R", "fields": []}',
        '{"type":"record","name":"R","namespace":"a.b","fields":[]}',
    ),
    "ascending order is the default": (
        '{"type":"record","name":"R","fields":[{"order":"ascending","name":"f","type":"int","default":1}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":1}]}',
    ),
    "another order is kept": (
        '{"type":"record","name":"R","fields":[{"order":"ignore","name":"f","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int","order":"ignore"}]}',
    ),
    "a default of null is one": (
        '{"type":"record","name":"R","fields":[{"default":null,"type":["null","int"],"name":"f"}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":["null","int"],"default":null}]}',
    ),
    "an inner type inherits the namespace": (
        '{"type":"record","name":"n.R","fields":[{"name":"f","type":{"type":"enum","name":"E","namespace":"n",'
        '"symbols":["A"]}},{"name":"g","type":"n.E"}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":{"type":"enum","name":"E",'
        '"symbols":["A"]}},{"name":"g","type":"E"}]}',
    ),
    "text in Unicode": ('{"type":"enum","name":"E","symbols":["A"],"doc":"\\u00fc"}', None),
}


@pytest.mark.parametrize("name", CASES)
def test_canonical_text(name: str) -> None:
    given, expected = CASES[name]
    text = parse("AVRO", given).text
    assert text == (expected or '{"type":"enum","name":"E","doc":"ü","symbols":["A"]}')
    assert parse("AVRO", text).text == text, "canonical text stays as it is"


def test_references_are_names_in_the_text_and_definitions_where_resolved() -> None:
    inner = '{"type":"record","name":"In","namespace":"n","fields":[]}'
    outer = (
        '{"type":"record","name":"Out","namespace":"n","fields":[{"name":"a","type":"In"},{"name":"b","type":"In"}]}'
    )
    schema = parse("AVRO", outer, [Resolved("n.In", inner)])
    assert schema.text == outer
    fields = json.loads(schema.resolved())["fields"]
    assert fields[0]["type"] == {"type": "record", "name": "In", "fields": []}
    assert fields[1]["type"] == "In"


def test_normalized_text_sorts_properties() -> None:
    schema = parse("AVRO", '{"type":"enum","name":"E","symbols":["B","A"],"z":1,"a":2}')
    assert schema.text == '{"type":"enum","name":"E","symbols":["B","A"],"z":1,"a":2}'
    assert schema.normalized() == '{"type":"enum","name":"E","symbols":["B","A"],"a":2,"z":1}'


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        '{"type":"record"}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"Unknown"}]}',
        '{"type":"record","name":"1R","fields":[]}',
        '{"type":"enum","name":"E","symbols":["A","A"]}',
        '{"type":"fixed","name":"F"}',
        '["int","int"]',
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int"},{"name":"f","type":"int"}]}',
        "[]x",
        "12",
    ],
)
def test_invalid(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse("AVRO", text)
