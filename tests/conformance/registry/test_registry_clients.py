"""confluent-kafka's client of a schema registry, its serializers and deserializers, unchanged, end to end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory

from ottla.registry.schema_types.protobuf_compiler import ROOT, compile_files
from ottla.testing import Broker, Registry


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["avro", "json", "protobuf"], group_initial_rebalance_delay_ms=0) as started:
        yield started


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[Registry]:
    with Registry(broker.bootstrap) as started:
        yield started


@pytest.fixture
def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def sent_and_received(
    broker: Broker, topic: str, write: Callable[..., Any], read: Callable[..., Any], value: Any
) -> Any:
    """What a consumer makes of a value that was produced, each by a serializer."""
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, write(value, context))
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = None
    while found is None:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found = read(message.value(), context)
        consumer.commit(message, asynchronous=False)
    consumer.close()
    return found


def test_avro(broker: Broker, client: SchemaRegistryClient) -> None:
    def schema(*more: dict[str, Any]) -> str:
        fields = [{"name": "id", "type": "long"}, *more]
        return json.dumps({"type": "record", "name": "Order", "fields": fields})

    read = AvroDeserializer(client)
    write = AvroSerializer(client, schema())
    assert sent_and_received(broker, "avro", write, read, {"id": 1}) == {"id": 1}
    newer = AvroSerializer(client, schema({"name": "note", "type": "string", "default": ""}))
    value = {"id": 2, "note": "n"}
    assert sent_and_received(broker, "avro", newer, read, value) == value
    assert client.get_versions("avro-value") == [1, 2]
    context = SerializationContext("avro", MessageField.VALUE)
    incompatible = AvroSerializer(client, schema({"name": "more", "type": "int"}))
    with pytest.raises(SchemaRegistryError) as raised:
        incompatible({"id": 3, "more": 1}, context)
    assert (raised.value.http_status_code, raised.value.error_code) == (409, 40901)


def test_avro_with_the_latest_version(broker: Broker, client: SchemaRegistryClient) -> None:
    text = json.dumps({"type": "record", "name": "L", "fields": [{"name": "a", "type": "int"}]})
    client.register_schema("latest-value", Schema(text))
    write = AvroSerializer(client, conf={"auto.register.schemas": False, "use.latest.version": True})
    context = SerializationContext("latest", MessageField.VALUE)
    assert AvroDeserializer(client)(write({"a": 1}, context), context) == {"a": 1}


def test_json(broker: Broker, client: SchemaRegistryClient) -> None:
    text = json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Order",
            "type": "object",
            "properties": {"id": {"type": "integer"}},
            "required": ["id"],
        }
    )
    write = JSONSerializer(text, client)
    read = JSONDeserializer(None, schema_registry_client=client)
    assert sent_and_received(broker, "json", write, read, {"id": 1}) == {"id": 1}
    assert client.get_latest_version("json-value").schema.schema_type == "JSON"


FILES = {
    "ottla_test/in.proto": 'syntax = "proto3"; package ottla_test; message In { int32 n = 1; }',
    "ottla_test/out.proto": """
        syntax = "proto3";
        package ottla_test;
        import "ottla_test/in.proto";
        import "google/protobuf/timestamp.proto";
        message Other {}
        message Out { In in = 1; google.protobuf.Timestamp at = 2; map<string, string> tags = 3; }
    """,
}


def message_class(name: str) -> Any:
    """As if protoc had generated it."""
    pool = descriptor_pool.Default()
    try:
        pool.FindFileByName("ottla_test/out.proto")
    except KeyError:
        imports = " ".join(f'import "{each}";' for each in FILES)
        compiled = compile_files({**FILES, ROOT: f'syntax = "proto3"; {imports}'})
        for file in FILES:
            pool.Add(compiled[file])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf(broker: Broker, registry: Registry, client: SchemaRegistryClient) -> None:
    """A message with an import that the client takes for known, and one that it registers as a reference."""
    kind = message_class("ottla_test.Out")
    write = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    fresh = SchemaRegistryClient({"url": registry.url})
    read = ProtobufDeserializer(kind, {"use.deprecated.format": False}, fresh)
    value = kind(tags={"a": "b"})
    getattr(value, "in").n = 7
    value.at.seconds = 5
    assert sent_and_received(broker, "protobuf", write, read, value) == value
    found = fresh.get_latest_version("protobuf-value").schema
    assert found.schema_type == "PROTOBUF"
    assert [each.name for each in found.references] == ["ottla_test/in.proto"]
    text = httpx.get(f"{registry.url}/subjects/protobuf-value/versions/1/schema").text
    assert "message Out {\n  .ottla_test.In in = 1;\n" in text


def test_references(client: SchemaRegistryClient) -> None:
    inner = Schema('{"type":"record","name":"In","namespace":"n","fields":[{"name":"v","type":"int"}]}')
    client.register_schema("inner", inner)
    outer = Schema(
        '{"type":"record","name":"Out","namespace":"n","fields":[{"name":"i","type":"In"}]}',
        references=[SchemaReference(name="n.In", subject="inner", version=1)],
    )
    schema_id = client.register_schema("outer", outer)
    found = client.get_schema(schema_id)
    assert found.schema_str == outer.schema_str
    assert [each.subject for each in found.references] == ["inner"]
    assert client.get_referenced_by("inner", 1) == [schema_id]
    context = SerializationContext("references", MessageField.VALUE)
    write, read = AvroSerializer(client, outer), AvroDeserializer(client)
    assert read(write({"i": {"v": 1}}, context), context) == {"i": {"v": 1}}


def test_the_rest_of_the_client(client: SchemaRegistryClient) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    wider = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
    registered = client.register_schema_full_response("all", Schema(text))
    assert (registered.version, client.lookup_schema("all", Schema(text)).schema_id) == (1, registered.schema_id)
    assert "all" in client.get_subjects()
    assert client.get_version("all", 1).schema.schema_str == text
    assert registered.guid is not None
    assert client.get_schema_by_guid(registered.guid).schema_str == text
    assert client.get_subjects_by_schema_id(registered.schema_id) == ["all"]
    assert client.test_compatibility("all", Schema(wider)) is False
    assert client.set_compatibility("all", "NONE")
    assert client.get_compatibility("all") == "NONE"
    assert client.test_compatibility("all", Schema(wider)) is True
    client.register_schema("all", Schema(wider))
    assert client.delete_version("all", 2) == 2
    assert client.delete_version("all", 2, permanent=True) == 2
    assert client.delete_subject("all") == [1]
    assert client.delete_subject("all", permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as raised:
        client.get_version("all", 1)
    assert raised.value.error_code == 40401
