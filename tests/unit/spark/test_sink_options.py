"""What a sink is told, what it refuses, and which columns it takes."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from ottla.formats.ddl import type_of_ddl
from ottla.spark.rows import rows_of
from ottla.spark.sink_options import SinkOptions, sink_options

HERE = {"kafka.bootstrap.servers": "localhost:9092"}


def parsed(stream: bool = True, **options: str) -> SinkOptions:
    return sink_options(
        {**HERE, **{name.replace("__", "."): value for name, value in options.items()}}, is_stream=stream
    )


def test_defaults() -> None:
    options = parsed(topic="t")
    assert (options.acks, options.is_idempotent, options.is_exactly_once, options.codec) == ("all", True, False, "none")
    assert options.state_topic == "__ottla_sinks"
    assert options.transaction_timeout_ms == 900_000
    assert options.client.bootstrap == ("localhost:9092",)


def test_names_are_in_any_case() -> None:
    options = sink_options(
        {
            **HERE,
            "TOPIC": "t",
            "Delivery": "Exactly-Once",
            "kafka.compression.type": "ZSTD",
            "includetimestamp": "TRUE",
        },
        is_stream=True,
    )
    assert options.is_exactly_once and options.codec == "zstd" and options.has_timestamps and options.topic == "t"


def test_acks_without_idempotence() -> None:
    assert not parsed(kafka__acks="1").is_idempotent
    assert parsed(kafka__acks="-1").acks == "all"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delivery": "maybe"}, "delivery: expected at-least-once or exactly-once, got maybe"),
        ({"kafka.acks": "2"}, "kafka.acks: expected all, 1 or 0, got 2"),
        ({"delivery": "exactly-once", "kafka.acks": "1"}, "kafka.acks: delivery=exactly-once needs acks=all"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "kafka.acks: idempotence needs acks=all"),
        ({"delivery": "exactly-once", "kafka.enable.idempotence": "false"}, "kafka.enable.idempotence: delivery"),
        ({"kafka.compression.type": "rar"}, "kafka.compression.type: expected one of none, gzip"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id: is not supported: it is derived from the query"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer: is not supported"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.security.protocol: is not set, but sasl.mechanism is"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.crl.location": "x"}, "kafka.ssl.crl.location: is not supported"),
        ({"kafka.batch.size": "-3"}, "kafka.batch.size: expected a whole number from 1"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: must name at least one"),
        ({"topic": "a/b"}, "topic: 'a/b' is not a valid topic name"),
        ({"state.topic": ""}, "state.topic: '' is not a valid topic name"),
        ({"write.id": "x"}, "write.id: is for batch writes"),
        ({"includeTimestamp": "yes"}, "includeTimestamp: expected true or false, got yes"),
    ],
)
def test_what_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError) as error:
        sink_options({**HERE, "topic": "t", **options}, is_stream=True)
    assert str(error.value).startswith(says)


def test_the_id_of_a_write() -> None:
    assert parsed(False, topic="t", delivery="exactly-once", write__id="orders-7").write_id == "orders-7"
    with pytest.raises(ValueError, match="needs delivery=exactly-once"):
        parsed(False, topic="t", write__id="orders-7")
    with pytest.raises(ValueError, match="expected letters"):
        parsed(False, topic="t", delivery="exactly-once", write__id="a:b")


def schema(ddl: str) -> StructType:
    found = from_arrow_type(type_of_ddl(ddl))  # Spark's own parser of DDL needs a JVM
    assert isinstance(found, StructType)
    return found


@pytest.mark.parametrize(
    ("ddl", "options", "columns"),
    [
        ("value string", {"topic": "t"}, ("value",)),
        ("key binary, value binary, other int", {"topic": "t"}, ("key", "value")),
        ("topic string, value string", {}, ("value", "topic")),
        ("topic string, value string", {"topic": "t"}, ("value",)),
        ("value string, partition int, timestamp timestamp", {"topic": "t"}, ("value", "partition")),
        (
            "value string, timestamp timestamp, headers array<struct<key:string,value:binary>>",
            {"topic": "t", "includeTimestamp": "true"},
            ("value", "headers", "timestamp"),
        ),
        ("value struct<a:int>", {"topic": "t", "value.format": "json"}, ("value",)),
    ],
)
def test_columns(ddl: str, options: dict[str, str], columns: tuple[str, ...]) -> None:
    assert rows_of(schema(ddl), sink_options({**HERE, **options}, is_stream=True)).columns == columns


@pytest.mark.parametrize(
    ("ddl", "options", "says"),
    [
        ("key string", {"topic": "t"}, "there is no column value; there are key"),
        ("value string", {}, "no topic: set the option topic, or add a column topic"),
        ("value int", {"topic": "t"}, "value has the type int; it must be binary or string"),
        ("value string, partition bigint", {"topic": "t"}, "partition has the type bigint; it must be int"),
        ("value string, headers map<string,string>", {"topic": "t"}, "headers has the type"),
        ("value string, topic int", {}, "topic has the type int"),
        ("value string", {"topic": "t", "includeTimestamp": "true"}, "includeTimestamp: there is no column timestamp"),
        ("value struct<a:int>", {"topic": "t", "value.format": "avro"}, "value.format=avro needs value.schema"),
        (
            "value binary",
            {"topic": "t", "value.format": "string"},
            "value has the type binary, and value.format=string",
        ),
    ],
)
def test_columns_that_are_refused(ddl: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError) as error:
        rows_of(schema(ddl), sink_options({**HERE, **options}, is_stream=True))
    assert str(error.value).startswith(says)
