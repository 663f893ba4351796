"""Streams, beside Spark's own Kafka connector on the same topics wherever it has the same feature.

Queries run with AvailableNow, or until all that is available is processed; what is between two of Spark's calls is
asked of the reader itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from ottla.spark.offsets import of_topics, to_topics
from tests.spark.topics import Record, Topics, numbered

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")


class Query:
    """A source with options, a checkpoint, and what every batch had."""

    def __init__(self, spark: Any, name: str, bootstrap: str, checkpoint: Path, **options: Any) -> None:
        given = {key.replace("kafka_", "kafka.", 1).replace("__", "."): str(value) for key, value in options.items()}
        given = {"startingOffsets": "earliest"} | given
        stream = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap).options(**given)
        self.table = stream.load()
        self.checkpoint = checkpoint
        self.batches: dict[int, list[Any]] = {}
        self.ends: list[dict[str, dict[str, int]]] = []

    def start(self, failing: bool = False, **trigger: Any) -> Any:
        def keep(batch: Any, number: int) -> None:
            found = batch.collect()
            if failing and found:
                raise RuntimeError("the sink fails")
            self.batches[number] = found

        writer = self.table.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def run(self) -> list[int]:
        """All there is now: the values of this run."""
        self.batches, self.ends = {}, []
        query = self.start(availableNow=True)
        query.awaitTermination(120)
        assert not query.isActive
        ends = (json.loads(each.sources[0].endOffset) for each in query.recentProgress)
        self.ends = [to_topics(of_topics(end)) for end in ends]
        return self.values

    @property
    def values(self) -> list[int]:
        return sorted(int(row.value) for batch in self.batches.values() for row in batch)


@pytest.fixture
def query(spark: Any, topics: Topics, tmp_path: Path) -> Callable[..., Query]:
    def of(name: str = "ottla", checkpoint: str = "checkpoint", **options: Any) -> Query:
        return Query(spark, name, topics.bootstrap, tmp_path / checkpoint, **options)

    return of


def reader(topics: Topics, **options: Any) -> Any:
    """The part that plans, without Spark."""
    from ottla.spark.datasource import OttlaDataSource

    given = {key.replace("kafka_", "kafka.", 1).replace("__", "."): str(value) for key, value in options.items()}
    source = OttlaDataSource({"kafka.bootstrap.servers": topics.bootstrap, "startingOffsets": "earliest"} | given)
    return source.streamReader(source.schema())


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 70}, {"minPartitions": 5}])
def test_batches_are_the_connectors(
    query: Callable[..., Query], connector: None, topics: Topics, topic: str, limit: dict[str, int]
) -> None:
    topics.create(topic, 3)
    for record in numbered(90, 2), numbered(30, 1, 90), numbered(100, 3, 120):
        topics.produce(topic, record)
    theirs = query("kafka", "theirs", subscribe=topic, includeHeaders="true", **limit)
    ours = query("ottla", "ours", subscribe=topic, includeHeaders="true", **limit)
    assert ours.table.schema == theirs.table.schema
    assert ours.run() == theirs.run() == list(range(220))
    assert ours.ends == theirs.ends
    assert len(ours.batches) == (1 if "minPartitions" in limit else 4)
    for number, batch in theirs.batches.items():
        assert sorted(ours.batches[number], key=str) == sorted(batch, key=str)


def test_a_query_goes_on_from_its_checkpoint_and_from_the_connectors(
    query: Callable[..., Query], connector: None, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    for number, name in enumerate(("kafka", "ottla", "ottla", "kafka")):
        first = number * 20
        topics.produce(topic, numbered(20, 2, first))
        assert query(name, subscribe=topic, maxOffsetsPerTrigger=15).run() == list(range(first, first + 20))
    assert query("ottla", subscribe=topic).run() == []


def test_a_batch_that_failed_is_read_again(query: Callable[..., Query], topics: Topics, topic: str) -> None:
    topics.create(topic)
    failing = query(subscribe=topic, startingOffsets="latest")
    started = failing.start(failing=True)
    started.processAllAvailable()
    topics.produce(topic, numbered(10))
    with pytest.raises(Exception, match="the sink fails"):
        started.processAllAvailable()
    topics.produce(topic, numbered(10, first=10))
    assert query(subscribe=topic, startingOffsets="latest").run() == list(range(20))


def test_where_latest_was_survives_a_first_batch_that_is_not_done(topics: Topics, topic: str) -> None:
    """A query that dies in its first batch has in its checkpoint where that ends, and not where it began."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    topics.create(topic)
    topics.produce(topic, numbered(5))
    before = reader(topics, subscribe=topic, startingOffsets="latest")
    initial = before.initialOffset()
    topics.produce(topic, numbered(5))
    assert before.initialOffset() == initial and initial[topic] == {"0": 5}
    first = before.latestOffset(initial, ReadAllAvailable())
    assert first == initial
    assert before.latestOffset(first, ReadAllAvailable())[topic] == {"0": 10}

    after = reader(topics, subscribe=topic, startingOffsets="latest")
    again = after.initialOffset()
    assert again[topic] == {"0": 10}
    assert after.partitions(again, first) == []
    following = after.latestOffset(first, ReadAllAvailable())
    assert [each.value for each in after.partitions(first, following)] == [f"{topic}-0 from 5 to 10"]


def test_new_partitions_and_topics_are_picked_up(query: Callable[..., Query], topics: Topics, topic: str) -> None:
    topics.create(f"{topic}-a")
    topics.produce(f"{topic}-a", numbered(10))
    asked = query(subscribePattern=f"{topic}-.*", maxOffsetsPerTrigger=1000)
    started = asked.start()
    started.processAllAvailable()
    topics.grow(f"{topic}-a", 3)
    topics.produce(f"{topic}-a", numbered(10, 3, 10))
    started.processAllAvailable()
    assert asked.values == list(range(20))
    topics.create(f"{topic}-b", 2)
    topics.produce(f"{topic}-b", numbered(10, 2, 20))
    started.processAllAvailable()
    assert asked.values == list(range(30))
    started.stop()


def test_available_now_stops_where_it_began(topics: Topics, topic: str) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows

    topics.create(topic)
    topics.produce(topic, numbered(10))
    plans = reader(topics, subscribe=topic, maxOffsetsPerTrigger=6)
    initial = plans.initialOffset()
    plans.prepareForTriggerAvailableNow()
    topics.produce(topic, numbered(10))
    assert plans.getDefaultReadLimit() == ReadMaxRows(6)
    ends = [initial]
    while (end := plans.latestOffset(ends[-1], ReadMaxRows(6))) != ends[-1]:
        ends.append(end)
    assert [end[topic]["0"] for end in ends] == [0, 6, 10]
    # What it waits for would never come.
    assert plans.latestOffset(initial, ReadMinRows(1000))[topic]["0"] == 6


def test_batches_wait_for_enough_records_or_long_enough(topics: Topics, topic: str) -> None:
    from pyspark.sql.streaming.datasource import ReadMinRows

    topics.create(topic)
    topics.produce(topic, numbered(5))
    plans = reader(topics, subscribe=topic, minOffsetsPerTrigger=10, maxOffsetsPerTrigger=12, maxTriggerDelay="1h")
    limit = plans.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    first = plans.latestOffset(plans.initialOffset(), limit)
    assert first[topic]["0"] == 5, "the first batch does not wait"
    topics.produce(topic, numbered(5))
    assert plans.latestOffset(first, limit) == first
    topics.produce(topic, numbered(20))
    assert plans.latestOffset(first, limit)[topic]["0"] == 17
    assert plans.reportLatestOffset() == {topic: {"0": 30}}
    hasty = reader(topics, subscribe=topic, minOffsetsPerTrigger=100, maxTriggerDelay="0ms")
    begin = hasty.latestOffset(hasty.initialOffset(), limit)
    topics.produce(topic, numbered(1))
    assert hasty.latestOffset(begin, limit) != begin


def test_retention_passes_a_query(query: Callable[..., Query], connector: None, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.produce(topic, numbered(10))
    for name in ("kafka", "ottla"):
        assert query(name, name, subscribe=topic).run() == list(range(10))
    topics.produce(topic, numbered(40, first=10))
    topics.delete_records(topic, 30)
    with pytest.raises(Exception, match=r"begins at offset 30, behind 10, .* set failOnDataLoss to false"):
        query("ottla", "ottla", subscribe=topic).run()
    for name in ("kafka", "ottla"):
        assert query(name, name, subscribe=topic, failOnDataLoss="false").run() == list(range(30, 50))


@pytest.mark.parametrize("again", [5, 30])
def test_a_topic_is_recreated_between_two_runs(
    query: Callable[..., Query], topics: Topics, topic: str, again: int
) -> None:
    """Shorter than the old one, and longer. `tests/unit/spark/test_changed_topics.py` walks the rest."""
    topics.create(topic)
    topics.produce(topic, numbered(20))
    assert query(subscribe=topic).run() == list(range(20))
    topics.delete(topic)
    topics.create(topic)
    topics.produce(topic, numbered(again, first=100))
    for _ in range(2):
        with pytest.raises(Exception, match=f"topic {topic} was deleted and created again"):
            query(subscribe=topic).run()
    # Unlike the connector, which leaves out what the new topic had when that was noticed.
    assert query(subscribe=topic, failOnDataLoss="false").run() == list(range(100, 100 + again))
    topics.produce(topic, numbered(5, first=200))
    assert query(subscribe=topic).run() == list(range(200, 205))


def test_only_what_is_committed(query: Callable[..., Query], topics: Topics, topic: str) -> None:
    topics.create(topic)
    producer = topics.transactional(topic)
    options = {"subscribe": topic, "kafka_isolation.level": "read_committed"}
    producer.begin_transaction()
    topics.produce(topic, numbered(10), producer)
    assert query(**options).run() == []
    producer.abort_transaction(60)
    producer.begin_transaction()
    topics.produce(topic, numbered(10, first=10), producer)
    assert query(**options).run() == []
    producer.commit_transaction(60)
    assert query(**options).run() == list(range(10, 20))


def test_progress_is_shown_in_a_consumer_group(query: Callable[..., Query], topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    topics.produce(topic, numbered(21, 2))
    query(subscribe=topic, commit__group=topic, maxOffsetsPerTrigger=8).run()
    assert topics.committed(topic) == {(topic, 0): 11, (topic, 1): 10}
    started = query("ottla", "running", subscribe=topic, commit__group=f"{topic}-2").start()
    started.processAllAvailable()
    topics.produce(topic, numbered(2, 2))
    started.processAllAvailable()
    started.stop()
    assert topics.committed(f"{topic}-2")[topic, 0] >= 11


def test_a_group_with_members_is_left_alone(
    query: Callable[..., Query], topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create(topic)
    topics.produce(topic, numbered(10))
    member = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe([topic])
    assert len(member.consume(1, 60)) == 1
    assert query(subscribe=topic, commit__group=topic).run() == list(range(10))
    plans = reader(topics, subscribe=topic, commit__group=topic)
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        plans.commit({topic: {"0": 10}})
        plans.commit({topic: {"0": 9}})
    member.close()
    said = [record.message for record in caplog.records if record.name == "ottla.spark"]
    assert len(said) == 1 and "it has members, whose offsets" in said[0]
    assert topics.committed(topic) in ({}, {(topic, 0): -1001})


def test_typed_values_and_dead_letters(query: Callable[..., Query], topics: Topics, topic: str) -> None:
    topics.create(topic)
    letters = topics.create(f"{topic}-dead")
    topics.produce(topic, [b'{"id": 1}', Record(b"nonsense"), b'{"id": 2}'])
    asked = query(
        subscribe=topic,
        value__format="json",
        value__schema="id bigint",
        bad__records="dead-letter",
        dead__letter__topic=letters,
        columns="value,offset",
    )
    asked.table = asked.table.selectExpr("value.id as value")
    assert asked.run() == [1, 2]
    assert [message.value() for message in topics.read(letters, 1)] == [b"nonsense"]
