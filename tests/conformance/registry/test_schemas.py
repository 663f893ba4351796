"""Columns by a schema registry beside confluent-kafka's serializers: each reads what the other has written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from ottla.formats.errors import SchemaError
from ottla.formats.nested import Bad
from ottla.schemas import protobuf_files
from ottla.schemas.client import Registry as Client
from ottla.schemas.client import RegistryError, RegistryUnreachable
from ottla.schemas.client import Schema as OurSchema
from ottla.schemas.options import for_reading, for_writing, typed_of
from ottla.testing import Broker, Registry

VALUE = MessageField.VALUE


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Broker() as broker, Registry(broker.bootstrap) as started:
        yield started


@pytest.fixture
def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def options(registry: Registry, format: str, **more: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {"value.format": format, "schema.registry.url": registry.url, **given}


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def rows(chosen: Mapping[str, str], topic: str, values: list[bytes | None]) -> list[Any]:
    """Values as they are read by the registry of the options."""
    found, _ = typed_of(chosen, topic).read(batch(values))
    return list(found.column("value").to_pylist())


def encoded(chosen: Mapping[str, str], topic: str, column: pa.Array) -> list[bytes | None]:
    """Values as they are written, with a schema made of the column's type."""
    ready = for_writing(chosen, topic, {"value": column.type})
    found = typed_of(ready).write(pa.RecordBatch.from_arrays([column], names=["value"]))
    return list(found.column("value").to_pylist())


def record(*fields: Any, name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": "none"}

WIDE = pa.struct([
    ("id", pa.int64()), ("small", pa.int32()), ("name", pa.string()), ("price", pa.float64()), ("on", pa.bool_()),
    ("raw", pa.binary()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())),
    ("inner", pa.struct([("x", pa.int64())])), ("counts", pa.map_(pa.string(), pa.int64())),
])  # fmt: skip
WIDE_ROW = {
    "id": 1, "small": -2, "name": "ä", "price": 1.5, "on": True, "raw": b"\0\1",
    "at": datetime(2026, 11, 25, 12, 0, 0, 123456, UTC), "tags": ["a", "b"], "inner": {"x": 7}, "counts": {"k": 3},
}  # fmt: skip


# Avro


def test_avro_of_several_versions_is_read_as_one(registry: Registry, client: SchemaRegistryClient) -> None:
    context = SerializationContext("versions", VALUE)
    old, new = AvroSerializer(client, record(ID)), AvroSerializer(client, record(ID, NOTE))
    values = [old({"id": 1}, context), None, new({"id": 2, "note": "n"}, context), old({"id": 3}, context)]
    latest = [{"id": 1, "note": "none"}, None, {"id": 2, "note": "n"}, {"id": 3, "note": "none"}]
    assert rows(options(registry, "avro"), "versions", values) == latest
    first = options(registry, "avro", value_schema_version="1")
    assert rows(first, "versions", values) == [{"id": 1}, None, {"id": 2}, {"id": 3}]
    own = options(registry, "avro", value_schema=record(NOTE))
    assert rows(own, "versions", values)[2] == {"note": "n"}


def test_avro_that_is_written_is_read_by_others(registry: Registry, client: SchemaRegistryClient) -> None:
    kind = pa.struct([*WIDE, ("due", pa.date32()), ("cost", pa.decimal128(10, 2))])
    row = {**WIDE_ROW, "due": date(2026, 11, 25), "cost": Decimal("12.34")}
    values = encoded(options(registry, "avro"), "wide", pa.array([row, None, {"id": 2}], kind))
    read = AvroDeserializer(client)
    context = SerializationContext("wide", VALUE)
    assert read(values[0], context) == row
    assert values[1] is None
    assert read(values[2], context) == {**dict.fromkeys(row), "id": 2}
    found = rows(options(registry, "avro"), "wide", values)
    assert found[0] == {**row, "counts": [("k", 3)]}


def test_avro_with_references(registry: Registry, client: SchemaRegistryClient) -> None:
    client.register_schema("address", Schema(record({"name": "city", "type": "string"}, name="Address")))
    text = record(ID, {"name": "to", "type": "Address"}, {"name": "of", "type": ["null", "Address"], "default": None})
    schema = Schema(text, "AVRO", [SchemaReference("Address", "address", 1)])
    context = SerializationContext("orders", VALUE)
    value = AvroSerializer(client, schema)({"id": 1, "to": {"city": "Bonn"}, "of": None}, context)
    assert rows(options(registry, "avro"), "orders", [value]) == [{"id": 1, "to": {"city": "Bonn"}, "of": None}]


# JSON


def test_json(registry: Registry, client: SchemaRegistryClient) -> None:
    values = encoded(options(registry, "json"), "wide-json", pa.array([WIDE_ROW], WIDE))
    read = JSONDeserializer(None, schema_registry_client=client)
    context = SerializationContext("wide-json", VALUE)
    found = read(values[0], context)
    assert found is not None
    assert found["inner"] == {"x": 7}
    assert found["at"] == "2026-11-25T12:00:00.123456Z"
    assert rows(options(registry, "json"), "wide-json", values) == [{**WIDE_ROW, "counts": [("k", 3)]}]
    text = json.dumps(
        {
            "title": "Person",
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "age": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
                "lives": {"$ref": "#/definitions/place"},
                "any": {},
            },
            "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
        }
    )
    context = SerializationContext("people", VALUE)
    person = {"name": "a", "age": None, "lives": {"city": "Bonn"}, "any": [1, "x"]}
    value = JSONSerializer(text, client)(person, context)
    assert rows(options(registry, "json"), "people", [value]) == [{**person, "any": '[1,"x"]'}]


# Protobuf

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 a = 1; }
message Order {
  message Line { string sku = 1; sint32 count = 2; }
  enum State { OPEN = 0; DONE = 1; }
  int64 id = 1;
  repeated Line lines = 2;
  State state = 3;
  google.protobuf.Timestamp at = 4;
  google.protobuf.DoubleValue price = 5;
  map<string, int64> counts = 6;
  oneof way { string post = 7; bytes drone = 8; }
}
"""
ORDER = {
    "id": 1, "lines": [{"sku": "a", "count": -2}], "state": "DONE", "at": datetime(2026, 11, 25, tzinfo=UTC),
    "price": 1.5, "counts": [("k", 3)], "post": "p", "drone": None,
}  # fmt: skip


def test_protobuf_that_confluents_serializer_writes(registry: Registry, client: SchemaRegistryClient) -> None:
    file = protobuf_files.file_of(PROTO)
    order = message_factory.GetMessageClass(file.message_types_by_name["Order"])
    message = order(id=1, state=1, price={"value": 1.5}, at={"seconds": 1795564800}, counts={"k": 3}, post="p")
    message.lines.add(sku="a", count=-2)
    context = SerializationContext("shop", VALUE)
    value = ProtobufSerializer(order, client, {"use.deprecated.format": False})(message, context)
    chosen = options(registry, "protobuf", value_message="Order")
    assert rows(chosen, "shop", [value, None]) == [ORDER, None]
    with pytest.raises(ValueError, match=r"the message is shop\.Order, not shop\.Other"):
        rows(options(registry, "protobuf"), "shop", [value])
    with pytest.raises(SchemaError, match="there is no message Nobody"):
        typed_of(options(registry, "protobuf", value_message="Nobody"), "shop")


def test_protobuf_that_is_written_is_read_by_others(registry: Registry, client: SchemaRegistryClient) -> None:
    values = encoded(options(registry, "protobuf"), "wide-proto", pa.array([WIDE_ROW, {"id": 2}], WIDE))
    subject = client.get_latest_version("wide-proto-value")
    assert subject.schema.schema_type == "PROTOBUF"
    file = protobuf_files.file_of(subject.schema.schema_str)
    wide = message_factory.GetMessageClass(next(iter(file.message_types_by_name.values())))
    read = ProtobufDeserializer(wide, {"use.deprecated.format": False})
    found = read(values[0], SerializationContext("wide-proto", VALUE))
    assert found.inner.x == 7 and found.at.nanos == 123456000 and dict(found.counts) == {"k": 3}
    again = rows(options(registry, "protobuf"), "wide-proto", values)
    assert again[0] == {**WIDE_ROW, "counts": [("k", 3)]}
    assert again[1]["id"] == 2 and again[1]["name"] is None
    given = options(registry, "protobuf", value_schema=PROTO, value_message="Order")
    kind = pa.struct(
        [("id", pa.int64()), ("state", pa.string()), ("lines", pa.list_(pa.struct([("sku", pa.string())])))]
    )
    column = pa.array([{"id": 5, "state": "DONE", "lines": [{"sku": "x"}]}], kind)
    (value,) = encoded(given, "given", column)
    (order,) = rows(options(registry, "protobuf", value_message="shop.Order"), "given", [value])
    assert (order["id"], order["state"], order["lines"]) == (5, "DONE", [{"sku": "x", "count": 0}])


# What is not as it should be


def test_what_cannot_be_read(registry: Registry, client: SchemaRegistryClient) -> None:
    write = AvroSerializer(client, record(ID))
    good = write({"id": 1}, SerializationContext("bad", VALUE))
    other = AvroSerializer(client, '"string"')("x", SerializationContext("bad-other", VALUE))
    json_id = client.register_schema("bad-json-value", Schema('{"type": "object"}', "JSON"))
    wrong = [
        b"",
        b"{}",
        b"\0\0\0",
        other,
        b"\0\x7f\xff\xff\xff\x02",
        b"\0" + json_id.to_bytes(4, "big") + b"{}",
        good[:5],
    ]
    values = [good, *wrong, None]
    typed = typed_of(options(registry, "avro", bad_records="column"), "bad")
    found, _ = typed.read(batch(values))
    assert found.column("value").to_pylist() == [{"id": 1}, *[None] * len(wrong), None]
    assert found.column("_corrupt_record").to_pylist() == [None, *wrong, None]
    bad = Bad()
    typed.parts["value"].decode(values, bad)
    assert sorted(bad.reasons) == list(range(1, len(wrong) + 1))
    assert "Confluent's wire format" in bad.reasons[1]
    assert "Schema 2147483647 not found" in bad.reasons[5] and "it is of type JSON" in bad.reasons[6]


def test_a_registry_that_is_away_makes_no_record_bad(registry: Registry, client: SchemaRegistryClient) -> None:
    context = SerializationContext("away", VALUE)
    AvroSerializer(client, record(ID))({"id": 1}, context)
    unknown = AvroSerializer(client, record(ID, NOTE))({"id": 1, "note": "n"}, context)
    known = for_reading(options(registry, "avro", value_schema_version="1", bad_records="drop"), "away")
    typed = typed_of({**known, "schema.registry.url": "http://127.0.0.1:1"})
    typed.parts["value"]._options = {"schema.registry.url": "http://127.0.0.1:1"}  # type: ignore[attr-defined]
    with pytest.raises(RegistryUnreachable, match="no schema registry answers"):
        typed.read(batch([unknown]))


def test_writing_what_is_not_compatible(registry: Registry) -> None:
    first = pa.array([{"id": 1}], pa.struct([("id", pa.int64())]))
    encoded(options(registry, "avro"), "strict", first)
    with pytest.raises(SchemaError, match="subject strict-value: the schema is not registered"):
        encoded(options(registry, "avro"), "strict", pa.array([{"id": "a"}], pa.struct([("id", pa.string())])))
    with pytest.raises(RegistryError):
        encoded(
            options(registry, "avro", auto_register_schemas="false"),
            "strict",
            pa.array([{"new": 1}], pa.struct([("new", pa.int64())])),
        )
    (value,) = encoded(options(registry, "avro", use_latest_version="true"), "strict", first)
    assert rows(options(registry, "avro"), "strict", [value]) == [{"id": 1}]


@pytest.mark.parametrize(
    ("chosen", "topic", "says"),
    [
        ({"value.format": "avro"}, None, "value.subject is needed"),
        ({"value.format": "avro"}, "nowhere", "Subject 'nowhere-value' not found"),
        (
            {"value.format": "avro", "value.schema.version": "x"},
            "t",
            "value.schema.version: expected latest or a number",
        ),
        ({"value.format": "avro", "schema.registry.url": "nowhere"}, "t", "schema.registry.url: expected http://HOST"),
        ({"value.format": "xml"}, "t", "value.format must be one of"),
    ],
)
def test_what_is_refused(registry: Registry, chosen: dict[str, str], topic: str | None, says: str) -> None:
    with pytest.raises(SchemaError, match=says.replace(".", r"\.")):
        typed_of({"schema.registry.url": registry.url, **chosen}, topic)


def test_protobuf_needs_a_registry() -> None:
    with pytest.raises(SchemaError, match=r"value\.format=protobuf needs schema\.registry\.url"):
        typed_of({"value.format": "protobuf"})


def test_a_client_goes_on_with_the_next_url(registry: Registry) -> None:
    both = Client(f"http://127.0.0.1:1,{registry.url}")
    schema_id = both.register("next-value", OurSchema(record(ID)))
    assert both.by_id(schema_id).type == "AVRO"
    assert both.lookup("next-value", OurSchema(record(ID))).version == 1
    assert both.problems("next-value", OurSchema(record({"name": "x", "type": "int"}))) != []
    assert both.problems("next-value", OurSchema(record(ID, NOTE))) == []
    both.close()


def test_columns_are_cast_to_the_latest_version(registry: Registry, client: SchemaRegistryClient) -> None:
    client.register_schema(
        "cast-value", Schema(record(ID, {"name": "note", "type": ["null", "string"], "default": None}))
    )
    chosen = options(registry, "avro", use_latest_version="true")
    (value,) = encoded(chosen, "cast", pa.array([{"id": 1}], pa.struct([("id", pa.int32())])))
    assert rows(options(registry, "avro"), "cast", [value]) == [{"id": 1, "note": None}]
    order = pa.struct([("note", pa.string()), ("id", pa.int64())])
    (value,) = encoded(chosen, "cast", pa.array([{"note": "n", "id": 2}], order))
    assert rows(options(registry, "avro"), "cast", [value]) == [{"id": 2, "note": "n"}]
    for kind, row in (
        (pa.struct([("id", pa.string())]), {"id": "x"}),
        (pa.struct([("note", pa.string())]), {"note": "n"}),
    ):
        with pytest.raises(ValueError):
            encoded(chosen, "cast", pa.array([row], kind))
