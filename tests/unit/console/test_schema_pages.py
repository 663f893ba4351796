"""Records that a registry's schema encodes, with errors at their field; versions of a subject compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.console.asking import Asking, NotFound, Site
from ottla.console.masks import Masks
from ottla.console.routes import PAGES
from ottla.console.views.schemas import LINES_MAX, compared
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from ottla.schemas.client import NOT_FOUND, Registered, RegistryError, RegistryUnreachable, Schema
from ottla.schemas.json_codecs import codec_of
from tests.unit.console.acting import Acting, ChangingRegistry
from tests.unit.console.fake_changes import TOPIC
from tests.unit.console.fake_cluster import FakeBrokers, user

(SUBJECT,) = (each for each in PAGES if each.name == "subject")
AVRO = Schema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}))
JSON = Schema(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}), "JSON")
PROTOBUF = Schema('syntax = "proto3"; message R { int32 id = 1; }', "PROTOBUF")
TYPES = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTOBUF}


class Schemas(ChangingRegistry):
    """Subjects with schemas that can be used; the versions of `s` are given."""

    def __init__(self, **by_subject: Schema) -> None:
        super().__init__()
        self.by_subject = by_subject
        self.texts: list[str] = []
        self.gone = False

    def versions(self, subject: str) -> list[int]:
        return list(range(1, len(self.texts) + 1))

    def version(self, subject: str, version: int | str = "latest") -> Registered:
        if self.gone:
            raise RegistryUnreachable("http://r: refused")
        if self.texts:
            number = len(self.texts) if version == "latest" else int(version)
            return Registered(subject, number, 7, Schema(self.texts[number - 1]))
        if subject not in self.by_subject:
            raise RegistryError(f"no subject {subject}", 40401, NOT_FOUND)
        return Registered(subject, 2, 7, self.by_subject[subject])

    def parts(self, schema: Schema) -> list[tuple[str, str]]:
        return []


def acting(registry: Schemas) -> Acting:
    made = Acting()
    made.registry = registry
    object.__setattr__(made.site, "registry", registry)
    return made


def written(made: Acting) -> Any:
    """The header of the batch and its record."""
    (change,) = made.brokers.changes
    data = memoryview(change[1]["topic_data"][0]["partition_data"][0]["records"])
    ((position, header),) = iterate_batches(data)
    (record,) = iterate_records(data[position : position + header.size]) if header.attributes & 7 == 0 else (None,)
    return header, record


@pytest.mark.parametrize("kind", list(TYPES))
def test_a_value_is_encoded_by_its_schema(kind: str) -> None:
    made = acting(Schemas(**{f"{TOPIC}-value": TYPES[kind], "other": AVRO}))
    values = {
        "topic": TOPIC,
        "value": '{"id": 5}',
        "value_format": "schema",
        "key": '{"id": 6}',
        "key_format": "schema",
        "key_subject": "other",
    }
    answer = made.api("produce", values)
    assert answer.status_code == 200, answer.text
    _, record = written(made)
    for data, schema in ((record.value, TYPES[kind]), (record.key, AVRO)):
        assert bytes(data[:5]) == b"\0\0\0\0\7"
        assert json.loads(codec_of(schema, []).to_text(bytes(data[5:]))) == {"id": 5 if data is record.value else 6}
    notes = [each["note"] for each in answer.json()["data"]["changes"]]
    assert f"{kind}, version 2 of {TOPIC}-value, schema 7" in notes
    assert {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}[kind] in answer.json()["data"]["command"]


@pytest.mark.parametrize(
    ("values", "field", "why"),
    [
        ({"value": '{"id": "x"}'}, "value", 'id: "x" is no int'),
        ({"value": "{}"}, "value", "the field id is missing"),
        ({"value": '{"id": 5,'}, "value", "line 1, character 10"),
        ({"value": '{"id": 5}', "value_subject": "none"}, "value_subject", "no subject none"),
        ({"value": '{"id": 5}', "value_subject": "bad"}, "value_subject", "cannot be used"),
        ({"value": "{}", "value_format": "hex"}, "value", "hexadecimal"),
        ({"value": "{}", "value_format": "null"}, "value", "must be empty"),
        ({"value": "a", "value_format": "text", "timestamp": "soon"}, "timestamp", "2026-01-31T12:30"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field(values: dict[str, str], field: str, why: str) -> None:
    made = acting(Schemas(**{f"{TOPIC}-value": AVRO, "bad": Schema("{")}))
    given = {"topic": TOPIC, "value_format": "schema", **values}
    answer = made.api("produce", given)
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert why in answer.json()["error"]
    shown = made.form("produce", given).text.replace("&#34;", '"')
    label = shown[shown.index(f'name="{field}"') :].partition("</label>")[0]
    assert why in label
    assert values["value"] in shown.replace("&#34;", '"')  # what was typed is still there
    assert made.changed == 0


def test_without_an_answer_of_the_registry_nothing_is_written() -> None:
    made = acting(Schemas())
    made.registry.gone = True  # type: ignore[attr-defined]
    answer = made.api("produce", {"topic": TOPIC, "value": "1", "value_format": "schema"})
    assert answer.status_code == 503
    assert made.changed == 0


@pytest.mark.parametrize("codec", [each.name.lower() for each in Codec])
def test_compression_and_a_time_of_ones_own(codec: str) -> None:
    made = Acting()
    values = {"topic": TOPIC, "value": "x" * 1000, "compression": codec, "timestamp": "2026-01-31T12:30:00+01:00"}
    assert made.api("produce", values).status_code == 200
    header, _ = written(made)
    assert header.attributes & 7 == Codec[codec.upper()] if hasattr(Codec, codec.upper()) else True
    assert header.max_timestamp == 1_769_859_000_000
    assert (header.size > 1000) == (codec == "none")


def subject(texts: list[str], refused: list[str] | None = None, **query: str) -> Any:
    registry = Schemas()
    registry.texts, registry.refused = texts, refused or []
    asking = Asking(user(FakeBrokers()), Site(Masks(), registry), SUBJECT.parameters({"subject": "s"}, query))
    return SUBJECT.view(asking)


def test_versions_are_compared() -> None:
    texts = ['{"a": 1, "b": 2}', '{"a":1,"b":3}', '{"a": 1, "b": 3, "c": 4}']
    found = subject(texts).comparison
    assert (found.before, found.after, found.added, found.removed, found.problems) == (2, 3, 2, 1, [])
    assert [(each.sign, each.text) for each in found.lines] == [
        ("", "{"),
        ("", '  "a": 1,'),
        ("-", '  "b": 3'),
        ("+", '  "b": 3,'),
        ("+", '  "c": 4'),
        ("", "}"),
    ]
    assert subject(texts, ["b was an int"], before="1", after="2").comparison.problems == ["b was an int"]
    assert subject(['{"a": 1}', '{ "a" : 1 }']).comparison.lines == []
    assert subject(texts[:1]).comparison is None
    with pytest.raises(NotFound, match="no version 9"):
        subject(texts, after="9")


def test_large_schemas_are_not_compared() -> None:
    assert compared(["a"] * (LINES_MAX + 1), ["b"]) is None
    lines = compared([str(each) for each in range(LINES_MAX)], [str(each) for each in range(LINES_MAX) if each != 500])
    assert [each.sign for each in lines or ()] == ["…", "", "", "", "-", "", "", ""]
