"""Spark's own Kafka connector as source and sink of a node, its real-time mode included."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import Broker

QUERY_S = 120
"""For a query to start or end on a busy machine."""
RECORDS = 200
"""Records that go through the real-time query one after another."""


@pytest.fixture
def connected(spark: Any, connector: None) -> Any:
    """The session, where it has the connector's jars."""
    return spark


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    topics = {"batch": 3, "headers": 1, "in": 2, "out": 2, "paced": 1, "paced-out": 1, "fast": 1, "fast-out": 1}
    with Broker(topics=topics) as broker:
        yield broker.bootstrap


def reading(reader: Any, node: str, topic: str, **options: object) -> Any:
    settings = {"kafka.bootstrap.servers": node, "subscribe": topic, "startingOffsets": "earliest"}
    return reader.format("kafka").options(**settings, **options).load()


def writing(writer: Any, node: str, topic: str, **options: object) -> Any:
    return writer.format("kafka").options(**{"kafka.bootstrap.servers": node, "topic": topic}, **options)


def produce(node: str, topic: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": node})
    for at in range(first, end):
        producer.produce(topic, b"%d" % at)
    assert producer.flush(30) == 0


def numbers(spark: Any, node: str, topic: str) -> list[int]:
    rows = reading(spark.read, node, topic).selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").collect()
    return sorted(row.n for row in rows)


def run_available(frame: Any, node: str, topic: str, checkpoint: Path) -> Any:
    writer = writing(frame.writeStream, node, topic, checkpointLocation=str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_S)
    return query


def test_a_batch_is_written_and_read(connected: Any, node: str) -> None:
    rows = connected.range(1000).selectExpr(
        "IF(id % 10 = 0, NULL, CAST(id % 7 AS STRING)) AS key", "IF(id % 100 = 1, NULL, CAST(id AS STRING)) AS value"
    )
    writing(rows.write, node, "batch").save()
    found = reading(connected.read, node, "batch").selectExpr("CAST(key AS STRING) k", "CAST(value AS STRING) v")
    assert sorted(map(repr, found.collect())) == sorted(
        map(repr, rows.selectExpr("CAST(key AS STRING) k", "CAST(value AS STRING) v").collect())
    )
    part = reading(connected.read, node, "batch", endingOffsets='{"batch": {"0": 5, "1": 0, "2": 7}}')
    assert part.count() == 12


def test_headers(connected: Any, node: str) -> None:
    rows = connected.sql("SELECT 'v' AS value, array(struct('h' AS key, CAST('1' AS BINARY) AS value)) AS headers")
    writing(rows.write, node, "headers").save()
    (found,) = reading(connected.read, node, "headers", includeHeaders="true").select("headers").collect()
    assert [(each.key, bytes(each.value)) for each in found.headers] == [("h", b"1")]


def test_a_stream_goes_on_from_its_checkpoint(connected: Any, node: str, tmp_path: Path) -> None:
    frame = reading(connected.readStream, node, "in").select("value")
    for first, end in ((0, 300), (300, 450), (450, 450), (450, 500)):
        produce(node, "in", first, end)
        run_available(frame, node, "out", tmp_path)
        assert numbers(connected, node, "out") == list(range(end))


def test_batches_are_as_large_as_asked_for(connected: Any, node: str, tmp_path: Path) -> None:
    produce(node, "paced", 0, 100)
    frame = reading(connected.readStream, node, "paced", maxOffsetsPerTrigger=30).select("value")
    query = run_available(frame, node, "paced-out", tmp_path)
    sizes = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    assert sum(sizes) == 100
    assert max(sizes) <= 30
    assert numbers(connected, node, "paced-out") == list(range(100))


def test_real_time_mode(connected: Any, node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records go through while the long batch runs, in milliseconds each; how many depends on the machine."""
    frame = reading(connected.readStream, node, "fast").select("value")
    writer = writing(frame.writeStream, node, "fast-out", checkpointLocation=str(tmp_path))
    query = writer.outputMode("update").trigger(realTime="5 minutes").start()
    consumer = Consumer(
        {"bootstrap.servers": node, "group.id": "real-time", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    )
    producer = Producer({"bootstrap.servers": node, "linger.ms": 0})
    try:
        consumer.subscribe(["fast-out"])
        latencies_ms: list[float] = []
        for at in range(RECORDS):
            sent_s = time.perf_counter()
            producer.produce("fast", b"%d" % at)
            producer.flush(10)
            deadline = time.monotonic() + QUERY_S
            while (message := consumer.poll(1)) is None and time.monotonic() < deadline:
                assert query.exception() is None, query.exception()
            assert message is not None, "the record did not come through"
            assert message.error() is None
            assert message.value() == b"%d" % at
            latencies_ms.append(1000 * (time.perf_counter() - sent_s))
    finally:
        query.stop()
        consumer.close()
    warm = latencies_ms[RECORDS // 4 :]
    with capsys.disabled():
        tail = statistics.quantiles(warm, n=100)
        print(f"\nreal-time mode, kafka to kafka: p50 {tail[49]:.1f} ms, p99 {tail[98]:.1f} ms")
    assert numbers(connected, node, "fast-out")[:RECORDS] == list(range(RECORDS))
