"""Batch reads, beside Spark's own Kafka connector on the same topics wherever it has the same feature."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.topics import BEGAN_MS, SECOND_MS, Record, Topics, numbered, rows, values

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def load(spark: Any, name: str, bootstrap: str, **options: Any) -> Any:
    """`kafka_` begins the names of client settings; other names are those of the options."""
    given = {key.replace("kafka_", "kafka.", 1).replace("__", "."): str(value) for key, value in options.items()}
    return spark.read.format(name).option("kafka.bootstrap.servers", bootstrap).options(**given).load()


def assert_same(spark: Any, bootstrap: str, **options: Any) -> list[tuple[Any, ...]]:
    theirs, ours = (load(spark, name, bootstrap, **options) for name in ("kafka", "ottla"))
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_kind_are_the_connectors(
    spark: Any, connector: None, topics: Topics, topic: str, codec: str
) -> None:
    topics.create(topic, 2)
    kinds = [
        Record(b"value", key=b"key"),
        Record(b"\x00\xff" * 500, key=b"\xff"),
        Record(None, key=b"tombstone"),
        Record(None),
        Record(b"", key=b""),
        Record(b"h", headers=[("a", b"1"), ("a", b"2"), ("null", None), ("empty", b""), ("", b"no name")]),
        Record(b"old", timestamp_ms=1),
        Record("snowman ☃".encode(), headers=[("☃", b"\xe2")]),
    ]
    with_codec = Producer({"bootstrap.servers": topics.bootstrap, "compression.type": codec, "linger.ms": 50})
    topics.produce(topic, [kind._replace(partition=number % 2) for number, kind in enumerate(kinds * 40)], with_codec)
    found = assert_same(spark, topics.bootstrap, subscribe=topic, includeHeaders="true")
    assert len(found) == 320
    assert len(assert_same(spark, topics.bootstrap, subscribe=topic)[0]) == 7


@pytest.fixture(scope="module")
def stocked(topics: Topics) -> Iterator[str]:
    """A prefix of two topics: `PREFIX-a` of three partitions and `PREFIX-b` of one, 300 and 100 records."""
    prefix = f"stocked-{id(topics)}"
    topics.create(f"{prefix}-a", 3)
    topics.create(f"{prefix}-b", 1, message_timestamp_type="LogAppendTime")
    topics.produce(f"{prefix}-a", numbered(300, 3))
    topics.produce(f"{prefix}-b", numbered(100))
    yield prefix
    for name in ("a", "b"):
        topics.delete(f"{prefix}-{name}")


A_OFFSETS = {"0": 10, "1": -2, "2": 95}
A_TIMES = {str(number): BEGAN_MS + (100 + number) * SECOND_MS for number in range(3)}

OPTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "subscribe": ({"subscribe": "P-a, P-b"}, 400),
    "subscribePattern": ({"subscribePattern": "P-.*"}, 400),
    "assign": ({"assign": {"P-a": [0, 2], "P-b": [0]}}, 300),
    "startingOffsets": ({"subscribe": "P-a", "startingOffsets": {"P-a": A_OFFSETS}}, 195),
    "endingOffsets": ({"subscribe": "P-a", "endingOffsets": {"P-a": {"0": 10, "1": -1, "2": 0}}}, 110),
    "earliest": ({"subscribe": "P-a", "startingOffsets": "earliest", "endingOffsets": "latest"}, 300),
    "startingTimestamp": ({"subscribe": "P-a", "startingTimestamp": BEGAN_MS + 250 * SECOND_MS}, 50),
    "endingTimestamp": ({"subscribe": "P-a", "endingTimestamp": BEGAN_MS + 250 * SECOND_MS}, 250),
    "late endingTimestamp": ({"subscribe": "P-a", "endingTimestamp": BEGAN_MS * 2}, 300),
    "startingOffsetsByTimestamp": ({"subscribe": "P-a", "startingOffsetsByTimestamp": {"P-a": A_TIMES}}, 198),
    "endingOffsetsByTimestamp": ({"subscribe": "P-a", "endingOffsetsByTimestamp": {"P-a": A_TIMES}}, 102),
    "strategy latest": (
        {
            "subscribe": "P-a",
            "startingTimestamp": BEGAN_MS + 298 * SECOND_MS,
            "startingOffsetsByTimestampStrategy": "latest",
        },
        2,
    ),
    "minPartitions": ({"subscribe": "P-a", "minPartitions": 7}, 300),
    "maxRecordsPerPartition": ({"subscribe": "P-a", "maxRecordsPerPartition": 30}, 300),
    "kafka.*": ({"subscribe": "P-a", "kafka_max.partition.fetch.bytes": 1000, "kafka_client.id": "me"}, 300),
    "connector's own": ({"subscribe": "P-b", "groupIdPrefix": "x", "fetchOffset__numRetries": 1}, 100),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_mean_what_they_mean_to_the_connector(
    spark: Any, connector: None, topics: Topics, stocked: str, name: str
) -> None:
    given, count = OPTIONS[name]
    options = {
        key: (json.dumps(value) if isinstance(value, dict) else str(value)).replace("P-", f"{stocked}-")
        for key, value in given.items()
    }
    assert len(assert_same(spark, topics.bootstrap, **options)) == count


@pytest.mark.parametrize(("given", "count"), [({"minPartitions": 7}, 8), ({}, 4), ({"maxRecordsPerPartition": 30}, 16)])
def test_as_many_tasks_as_the_connector_has(
    spark: Any, connector: None, topics: Topics, stocked: str, given: dict[str, Any], count: int
) -> None:
    def tasks(name: str) -> int:
        found = load(spark, name, topics.bootstrap, subscribePattern=f"{stocked}-.*", **given).rdd.getNumPartitions()
        return int(found)

    assert tasks("ottla") == count
    # Spark 4.2.0 reads batches from `kafka` by its first API, which does not look at maxRecordsPerPartition.
    assert tasks("kafka") == (4 if "maxRecordsPerPartition" in given else count)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "there-is-none"}, "there is no there-is-none"),
        ({"assign": '{"P-b":[0,7]}'}, "there is no P-b-7"),
        (
            {"subscribe": "P-b", "startingOffsets": '{"P-b":{"1":0}}'},
            "startingOffsets: must name exactly the partitions",
        ),
        ({"subscribe": "P-b", "startingTimestamp": 2 * BEGAN_MS}, "a timestamp at or after the starting timestamp"),
        ({"subscribe": "P-b", "startingOffsets": "latest"}, "startingOffsets: a batch cannot begin at latest"),
        ({"subscribe": "P-b", "columns": "value,weight"}, "columns: no columns weight; there are key, value"),
        ({"subscribe": "P-b", "value__format": "json"}, "value.format=json needs value.schema"),
    ],
)
def test_what_cannot_be_read_says_why(
    spark: Any, topics: Topics, stocked: str, given: dict[str, Any], says: str
) -> None:
    options = {name: str(value).replace("P-", f"{stocked}-") for name, value in given.items()}
    with pytest.raises(Exception, match=says.replace("P-", f"{stocked}-")):
        load(spark, "ottla", topics.bootstrap, **options).collect()


def test_only_what_is_committed(spark: Any, connector: None, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    producer = topics.transactional(topic)
    for first, ending in ((0, "commit"), (100, "abort"), (200, "commit"), (300, "abort")):
        producer.begin_transaction()
        topics.produce(topic, numbered(100, 2, first), producer)
        producer.commit_transaction(60) if ending == "commit" else producer.abort_transaction(60)
    topics.produce(topic, numbered(10, 2, 400))
    producer.begin_transaction()
    topics.produce(topic, numbered(10, 2, 500), producer)
    committed = {"subscribe": topic, "kafka_isolation.level": "read_committed"}
    found = assert_same(spark, topics.bootstrap, **committed)
    assert len(found) == 210
    assert len(assert_same(spark, topics.bootstrap, subscribe=topic)) == 420
    producer.abort_transaction(60)


# Columns


def test_a_schema_or_a_list_chooses_columns(spark: Any, topics: Topics, stocked: str) -> None:
    topic = f"{stocked}-b"
    read = spark.read.format("ottla").option("kafka.bootstrap.servers", topics.bootstrap).option("subscribe", topic)
    by_schema = read.schema("offset bigint, value binary").load()
    assert by_schema.columns == ["offset", "value"]
    by_list = read.option("columns", "offset, value").load()
    assert by_list.schema == by_schema.schema
    expected = [(number, b"%d" % number) for number in range(100)]
    assert sorted(map(tuple, by_schema.collect())) == sorted(map(tuple, by_list.collect())) == expected
    with_headers = read.schema("headers array<struct<key: string, value: binary>>, timestampType int not null").load()
    assert with_headers.where("headers is null and timestampType = 1").count() == 100
    for schema, says in (("value string", "value is binary, not string"), ("weight int", "no columns weight")):
        with pytest.raises(Exception, match=says):
            read.schema(schema).load().collect()


# Filters


@pytest.fixture
def pushdown(spark: Any) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


WHERE = {
    "offset >= 90 and offset < 95": 15,
    "offset = 3 or offset = 7": 6,
    "offset in (3, 4, 5)": 9,
    "partition = 1": 100,
    "partition in (0, 2) and offset > 97": 4,
    "partition <> 1": 200,
    "topic = 'another'": 0,
    "timestamp >= timestamp '2023-11-14 22:17:20'": 60,
    "timestamp > timestamp '2023-11-14 22:17:20' and timestamp <= timestamp '2023-11-14 22:17:30'": 10,
    "value = X'3130' and offset is not null": 1,
}


@pytest.mark.parametrize("where", WHERE)
def test_filters_choose_the_same_rows_pushed_down_or_not(
    spark: Any, topics: Topics, stocked: str, where: str, request: pytest.FixtureRequest
) -> None:
    table = load(spark, "ottla", topics.bootstrap, subscribe=f"{stocked}-a").where(where)
    plain = rows(table)
    request.getfixturevalue("pushdown")
    narrowed = load(spark, "ottla", topics.bootstrap, subscribe=f"{stocked}-a").where(where)
    assert rows(narrowed) == plain
    assert len(plain) == WHERE[where]


def test_spark_leaves_filters_by_place_to_the_source(spark: Any, topics: Topics, stocked: str, pushdown: None) -> None:
    def plan(where: str) -> str:
        table = load(spark, "ottla", topics.bootstrap, subscribe=f"{stocked}-a").where(where)
        return str(table._jdf.queryExecution().executedPlan().toString())

    assert "Filter (" not in plan("offset >= 90 and partition = 1 and topic = 'x'")
    assert "Filter (" in plan("timestamp > timestamp '2023-11-14 22:17:20'")


def test_filters_narrow_what_is_fetched(topics: Topics, stocked: str) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

    from ottla.spark.datasource import OttlaDataSource

    source = OttlaDataSource({"kafka.bootstrap.servers": topics.bootstrap, "subscribe": f"{stocked}-a"})

    def ranges(*filters: Any) -> list[str]:
        reader: Any = source.reader(source.schema())
        reader.pushFilters(list(filters))
        return [each.value.removeprefix(f"{stocked}-") for each in reader.partitions()]

    assert ranges() == ["a-0 from 0 to 100", "a-1 from 0 to 100", "a-2 from 0 to 100"]
    at = datetime.fromtimestamp(BEGAN_MS / 1000 + 250, UTC)
    late = ["a-0 from 84 to 100", "a-1 from 83 to 100", "a-2 from 83 to 100"]
    assert ranges(GreaterThanOrEqual(("timestamp",), at)) == late
    assert ranges(EqualTo(("partition",), 2), LessThan(("offset",), 5)) == ["a-2 from 0 to 5"]
    assert ranges(GreaterThanOrEqual(("timestamp",), at), EqualTo(("partition",), 1)) == late[1:2]
    assert ranges(GreaterThanOrEqual(("timestamp",), datetime(2030, 1, 1, tzinfo=UTC))) == []


# Records that are gone


def test_retention_before_the_start(spark: Any, connector: None, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.produce(topic, numbered(100))
    topics.delete_records(topic, 40)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 10}})}
    with pytest.raises(Exception, match=r"begins at offset 40, behind 10, .* set failOnDataLoss to false"):
        load(spark, "ottla", topics.bootstrap, **options).collect()
    assert len(assert_same(spark, topics.bootstrap, **options, failOnDataLoss="false")) == 60
    behind = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 120}})}
    with pytest.raises(Exception, match="ends at offset 100, before 120"):
        load(spark, "ottla", topics.bootstrap, **behind).collect()
    assert values(load(spark, "ottla", topics.bootstrap, **behind, failOnDataLoss="false")) == list(range(40, 100))


def planned(topics: Topics, topic: str, fail: bool, **options: str) -> tuple[Any, list[Any]]:
    """A reader and what its tasks are to read, for what happens before they do."""
    from ottla.spark.datasource import OttlaDataSource

    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "failOnDataLoss": str(fail).lower()}
    source = OttlaDataSource(given | options)
    reader = source.reader(source.schema())
    return reader, list(reader.partitions())


@pytest.mark.parametrize("fail", [True, False])
def test_retention_passes_a_task(topics: Topics, topic: str, fail: bool) -> None:
    from ottla.spark.planning import DataLoss

    topics.create(topic)
    # Each in a batch of its own, and fetches of one batch: so there are some left when retention passes.
    for number in range(20):
        topics.produce(topic, [Record(b"%d" % number)])
    reader, slices = planned(topics, topic, fail, **{"kafka.fetch.max.bytes": "1"})
    topics.delete_records(topic, 12)
    if fail:
        with pytest.raises(DataLoss, match="offsets from 12 to 20, not 0"):
            list(reader.read(slices[0]))
    else:
        found = [value for batch in reader.read(slices[0]) for value in batch.column("value").to_pylist()]
        assert found == [b"%d" % number for number in range(12, 20)]


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_a_topic_is_deleted_before_a_task(topics: Topics, topic: str, fail: bool, again: bool) -> None:
    from ottla.spark.planning import DataLoss

    topics.create(topic)
    topics.produce(topic, numbered(10))
    # How long a task looks for a leader of a topic that may be back.
    reader, slices = planned(topics, topic, fail, **{"kafka.request.timeout.ms": "2000"})
    topics.delete(topic)
    if again:
        topics.create(topic)
        topics.produce(topic, numbered(30, first=100))
    if fail:
        with pytest.raises(DataLoss, match="deleted and recreated" if again else "its topic was deleted"):
            list(reader.read(slices[0]))
    else:
        assert list(reader.read(slices[0])) == []


# Typed topics

AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]}  # fmt: skip  # noqa: E501


def test_json_becomes_columns(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic)
    good = [Record(b'{"id": %d, "tags": ["a", "b"], "m": {"x": 1.5}}' % number, key=b"k") for number in range(5)]
    topics.produce(topic, [*good, Record(None, key=b"gone")])
    typed = {"value__format": "json", "value__schema": "id bigint, tags array<string>, m map<string, double>"}
    table = load(spark, "ottla", topics.bootstrap, subscribe=topic, key__format="string", **typed)
    assert table.schema["value"].dataType.simpleString() == "struct<id:bigint,tags:array<string>,m:map<string,double>>"
    found = table.selectExpr("key", "value.id", "value.tags", "value.m").collect()
    assert [tuple(row) for row in found] == [("k", n, ["a", "b"], {"x": 1.5}) for n in range(5)] + [
        ("gone", None, None, None)
    ]
    chosen = load(spark, "ottla", topics.bootstrap, subscribe=topic, columns="value", **typed)
    assert chosen.selectExpr("sum(value.id)").collect()[0][0] == 10


def test_avro_becomes_columns(spark: Any, topics: Topics, topic: str) -> None:
    import io

    import fastavro

    topics.create(topic)
    written = []
    for number in range(5):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"id": number, "tags": ["x"] * number})
        written.append(out.getvalue())
    topics.produce(topic, written)
    table = load(
        spark, "ottla", topics.bootstrap, subscribe=topic, value__format="avro", value__schema=json.dumps(AVRO)
    )
    found = [tuple(row) for row in table.selectExpr("value.id", "value.tags").collect()]
    assert found == [(number, ["x"] * number) for number in range(5)]


def test_bad_records_in_every_mode(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic)
    letters = topics.create(f"{topic}-dead")
    bad = Record(b"{", key=b"k", headers=[("h", b"1")])
    topics.produce(topic, [b'{"id": 1}', bad, b'{"id": 2}'])
    typed = {"subscribe": topic, "value__format": "json", "value__schema": "id bigint"}

    def ids(**options: str) -> list[Any]:
        table = load(spark, "ottla", topics.bootstrap, **typed, **options)
        return [tuple(row) for row in table.select("value.id", *table.columns[7:]).collect()]

    with pytest.raises(Exception, match=f"{topic}-0 at offset 1: the value is"):
        ids()
    assert ids(bad__records="column") == [(1, None), (None, b"{"), (2, None)]
    assert ids(bad__records="drop") == [(1,), (2,)]
    assert ids(bad__records="dead-letter", dead__letter__topic=letters) == [(1,), (2,)]
    (letter,) = topics.read(letters, 1)
    said = dict(letter.headers())
    assert (letter.key(), letter.value(), said["h"]) == (b"k", b"{", b"1")
    assert (said["__connect.errors.topic"], said["__connect.errors.offset"]) == (topic.encode(), b"1")
    # Whichever columns are wanted, the same records are dropped.
    only = load(spark, "ottla", topics.bootstrap, **typed, bad__records="drop", columns="offset")
    assert [row.offset for row in only.collect()] == [0, 2]
