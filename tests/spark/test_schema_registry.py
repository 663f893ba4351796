"""Typed columns by a schema registry: registered on write, read back as columns, evolution followed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla import arrow
from ottla.testing import Registry
from tests.spark.topics import Topics


@pytest.fixture(scope="module")
def registry(bootstrap: str) -> Iterator[Registry]:
    with Registry(bootstrap) as started:
        yield started


@pytest.fixture
def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


class Frames:
    """Frames of a topic by a registry."""

    def __init__(self, spark: Any, topics: Topics, registry: Registry, topic: str) -> None:
        self.spark, self.topic = spark, topic
        self.options = {"kafka.bootstrap.servers": topics.bootstrap, "schema.registry.url": registry.url}

    def write(self, query: str, format: str, **more: str) -> None:
        chosen = {**self.options, "topic": self.topic, "value.format": format, **_named(more)}
        self.spark.sql(query).write.format("ottla").options(**chosen).mode("append").save()

    def read(self, format: str, **more: str) -> Any:
        chosen = {**self.options, "subscribe": self.topic, "value.format": format, **_named(more)}
        return self.spark.read.format("ottla").options(**chosen).load()

    def stream(self, format: str, **more: str) -> Any:
        chosen = {**self.options, "subscribe": self.topic, "value.format": format, "startingOffsets": "earliest"}
        return self.spark.readStream.format("ottla").options(**chosen, **_named(more)).load()


def _named(more: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture
def frames(spark: Any, topics: Topics, registry: Registry, topic: str) -> Frames:
    topics.create(topic, 2)
    return Frames(spark, topics, registry, topic)


ROWS = """
    select cast(id as string) as key, named_struct('id', id, 'name', concat('n', id), 'at', timestamp_millis(id * 1000),
        'tags', array('a'), 'inner', named_struct('x', cast(id as double))) as value from range({}, {})
"""


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_what_is_written_is_read(frames: Frames, client: SchemaRegistryClient, format: str) -> None:
    frames.write(ROWS.format(0, 100), format)
    assert client.get_latest_version(f"{frames.topic}-value").schema.schema_type == format.upper()
    found = frames.read(format, key_format="string").select("key", "value.*").orderBy("id").collect()
    assert [(row.key, row.id, row.name, row.tags, row.inner.x) for row in found] == [
        (str(number), number, f"n{number}", ["a"], float(number)) for number in range(100)
    ]
    assert [row.at.timestamp() for row in found] == list(range(100))


def test_keys_have_subjects_of_their_own(frames: Frames, client: SchemaRegistryClient) -> None:
    query = "select named_struct('k', id) as key, concat('v', id) as value from range(5)"
    frames.write(query, "avro", key_format="avro")
    assert json.loads(client.get_latest_version(f"{frames.topic}-value").schema.schema_str) == "string"
    found = frames.read("avro", key_format="avro").select("key.k", "value").orderBy("k").collect()
    assert [tuple(row) for row in found] == [(number, f"v{number}") for number in range(5)]


def test_others_read_and_write(frames: Frames, client: SchemaRegistryClient, topics: Topics) -> None:
    frames.write("select named_struct('id', id, 'name', 'x') as value from range(3)", "avro")
    context = SerializationContext(frames.topic, MessageField.VALUE)
    read, table = AvroDeserializer(client), arrow.read(frames.topic, topics.bootstrap).read_all()
    found = sorted(read(value, context)["id"] for value in table["value"].to_pylist())
    assert found == [0, 1, 2]
    newer = json.dumps(
        {
            "type": "record",
            "name": f"{frames.topic}-value".replace("-", "_"),
            "fields": [
                {"name": "id", "type": ["null", "long"], "default": None},
                {"name": "name", "type": ["null", "string"], "default": None},
                {"name": "more", "type": "string", "default": "none"},
            ],
        }
    )
    write = AvroSerializer(client, newer)
    topics.produce(frames.topic, [write({"id": 9, "name": "y", "more": "m"}, context) or b""])
    found = frames.read("avro").select("value.*").orderBy("id").collect()
    assert [tuple(row) for row in found] == [*[(number, "x", "none") for number in range(3)], (9, "y", "m")]


def test_a_stream_goes_on_while_its_schema_grows(frames: Frames, tmp_path: Path) -> None:
    """A query keeps the columns that it has been planned with; one that is started again has the new ones."""
    frames.write("select named_struct('id', id) as value from range(10)", "avro")
    planned = frames.stream("avro").select("value.*")

    def run(frame: Any) -> None:
        files = frame.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
        files.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    def rows() -> list[dict[str, Any]]:
        lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
        return sorted((json.loads(line) for line in lines), key=lambda row: int(row["id"]))

    run(planned)
    grown = "select named_struct('id', id, 'name', concat('n', id)) as value from range({}, {})"
    frames.write(grown.format(10, 20), "avro")
    run(planned)
    assert rows() == [{"id": number} for number in range(20)]
    frames.write(grown.format(20, 30), "avro")
    run(frames.stream("avro").select("value.*"))
    assert rows() == [{"id": number} if number < 20 else {"id": number, "name": f"n{number}"} for number in range(30)]


def test_a_schema_that_others_could_not_read_is_refused(frames: Frames) -> None:
    frames.write("select named_struct('id', id) as value from range(3)", "avro")
    with pytest.raises(Exception, match="the schema is not registered"):
        frames.write("select named_struct('id', concat('x', id)) as value from range(3)", "avro")
    assert frames.read("avro").count() == 3


def test_what_cannot_be_read_goes_to_dead_letters(frames: Frames, topics: Topics) -> None:
    frames.write("select named_struct('id', id) as value from range(3)", "avro")
    topics.produce(frames.topic, [b"no schema's id", b"\0\x7f\xff\xff\xff1"])
    letters = topics.create(f"{frames.topic}-letters")
    read = frames.read("avro", bad_records="dead-letter", dead_letter_topic=letters)
    assert sorted(row.id for row in read.select("value.id").collect()) == [0, 1, 2]
    found = arrow.read(letters, topics.bootstrap, headers=True).read_all().to_pylist()
    said = {each["value"]: {one["key"]: one["value"] for one in each["headers"]} for each in found}
    assert b"wire format" in said[b"no schema's id"]["__connect.errors.exception.message"]
    assert b"2147483647" in said[b"\0\x7f\xff\xff\xff1"]["__connect.errors.exception.message"]
