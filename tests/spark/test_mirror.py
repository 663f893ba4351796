"""A mirror between two real clusters: records as they were, exactly once, and groups at the exact record."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla import arrow
from ottla.mirror.ledger import MirrorError
from ottla.mirror.mirror import Failback, Mirror, Route
from ottla.testing import Broker
from tests.spark.topics import Record, Topics


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """The second cluster."""
    with Broker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap


def route(bootstrap: str, other: str, topic: str, name: str) -> Route:
    return Route(f"a{name}", bootstrap, f"b{name}", other, topic, f"{topic}-.*")


def rows(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """What readers of committed records see, without offsets."""
    table = arrow.read(topic, bootstrap, headers=True).read_all()
    names = ("partition", "key", "value", "timestamp", "headers")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def with_gaps(bootstrap: str, topic: str, label: str = "") -> None:
    """Committed and aborted transactions: offsets that no record has."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-gaps"})
    producer.init_transactions(30)
    for round_ in range(6):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{label}{round_}-{number}", key=f"{round_}", partition=0)
        assert producer.flush(30) == 0  # also what is aborted
        if round_ % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    wanted = [TopicPartition(*at, offset) for at, offset in offsets.items()]
    deadline = time.monotonic() + 30
    while True:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
            break
        except KafkaException as error:  # a Kafka that has just started
            if error.args[0].name() != "NOT_COORDINATOR" or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    consumer.close()


def first(bootstrap: str, group: str, topic: str) -> bytes | None:
    """The value of the record at which a group goes on in partition 0; None where it has read everything."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "enable.partition.eof": True,
        "auto.offset.reset": "error", "isolation.level": "read_committed",
    })  # fmt: skip
    (at,) = consumer.committed([TopicPartition(topic, 0)], 30)
    assert at.offset >= 0, "no committed offset"
    consumer.assign([at])
    message = consumer.poll(30)
    assert message is not None
    consumer.close()
    if message.error() is not None:
        assert message.error().name() == "_PARTITION_EOF", message.error()
        return None
    value: bytes | None = message.value()
    return value


def test_records_configs_and_partitions_are_those_of_the_source(
    spark: Any, topics: Topics, bootstrap: str, other: str, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2, retention_ms="86400000")
    topics.produce(topic, [
        Record(b"v", 1, b"k", [("h", b"1"), ("h", None)], 1_700_000_000_123), Record(None, 0, b"tombstone"),
        Record(b"", 0, b""), Record(b"no key", 1),
    ])  # fmt: skip
    mirror = Mirror(route(bootstrap, other, topic, topic), spark, tmp_path)
    mirror.step()
    assert rows(other, topic) == rows(bootstrap, topic)

    topics.grow(topic, 3)
    topics.produce(topic, [Record(b"third", 2), Record(b"more", 0)])
    mirror.source.set_configs(topic, {"retention.ms": None, "max.message.bytes": "2000000"})
    assert [(row["partition"], row["lag_records"]) for row in mirror.status()] == [(0, 1), (1, 0), (2, 1)]
    again = Mirror(route(bootstrap, other, topic, topic), spark, tmp_path)
    again.step()
    again.step()
    assert rows(other, topic) == rows(bootstrap, topic)
    assert mirror.destination.configs([topic])[topic] == {"max.message.bytes": "2000000"}
    assert [row["lag_records"] for row in again.status()] == [0, 0, 0]


def test_every_offset_of_a_group_is_translated_to_the_exact_record(
    spark: Any, topics: Topics, bootstrap: str, other: str, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    mirror = Mirror(route(bootstrap, other, topic, topic), spark, tmp_path)
    for label in ("a", "b"):
        with_gaps(bootstrap, topic, label)
        mirror.step()
    (end,) = mirror.source.ends([(topic, 0)]).values()
    for offset in range(end + 1):
        commit(bootstrap, f"{topic}-{offset}", {(topic, 0): offset})
    mirror.step()
    found = {offset: first(other, f"{topic}-{offset}", topic) for offset in range(0, end + 1, 3)}
    assert found == {offset: first(bootstrap, f"{topic}-{offset}", topic) for offset in found}
    assert len(set(found.values())) > 8


def test_a_group_that_moves_over_and_back_goes_on_at_the_exact_record(
    spark: Any, topics: Topics, bootstrap: str, other: str, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    group, behind = f"{topic}-moving", f"{topic}-behind"
    with_gaps(bootstrap, topic)
    way = route(bootstrap, other, topic, topic)
    mirror = Mirror(way, spark, tmp_path / "over")
    commit(bootstrap, group, {(topic, 0): 9})
    commit(bootstrap, behind, {(topic, 0): 1})
    mirror.failover()
    assert first(other, group, topic) == first(bootstrap, group, topic) == b"2-1"

    topics.produce(topic, [b"never mirrored"])
    there = Topics(other)
    there.produce(topic, [Record(f"own {n}".encode()) for n in range(5)])
    mirror.step()
    assert b"never mirrored" not in [row[2] for row in rows(other, topic)]
    (cut,) = mirror.ledger.cuts.values()
    commit(other, group, {(topic, 0): cut + 2})
    assert first(other, group, topic) == b"own 2"

    lost = tmp_path / "unmirrored.jsonl"
    failback = Failback(way, spark, tmp_path / "back", lost)
    failback.step()
    failback.finish()
    assert [json.loads(line)["value"] for line in lost.read_text().splitlines()] == ["never mirrored"]
    assert first(bootstrap, group, topic) == b"own 2"
    assert first(bootstrap, behind, topic) == b"0-1"
    assert [row[2] for row in rows(bootstrap, topic)][-6:] == [
        b"never mirrored",
        *(f"own {n}".encode() for n in range(5)),
    ]

    topics.produce(topic, [b"home again"])
    Mirror(way, spark, tmp_path / "over").step()
    assert [row[2] for row in rows(other, topic)][-6:] == [*(f"own {n}".encode() for n in range(5)), b"home again"]


def test_topics_that_somebody_else_wrote_to_are_refused(
    spark: Any, topics: Topics, bootstrap: str, other: str, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    there = Topics(other)
    there.create(topic)
    there.produce(topic, [b"mine"])
    with pytest.raises(MirrorError, match="records of its own"):
        Mirror(route(bootstrap, other, topic, topic), spark, tmp_path).step()


def test_mirrored_records_do_not_come_back(
    spark: Any, topics: Topics, bootstrap: str, other: str, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.produce(topic, [b"once"])
    way = route(bootstrap, other, topic, topic)
    Mirror(way, spark, tmp_path / "over").step()
    back = Mirror(way.reversed(), spark, tmp_path / "back")
    back.step()
    assert back.chosen() == {}
    assert [row[2] for row in rows(bootstrap, topic)] == [b"once"]


@pytest.mark.parametrize("kafka_is_source", [True, False])
def test_kafka_on_either_side(
    spark: Any, bootstrap: str, oracle: str, topic: str, tmp_path: Path, kafka_is_source: bool
) -> None:
    source, destination = (oracle, bootstrap) if kafka_is_source else (bootstrap, oracle)
    Topics(source).create(topic)
    with_gaps(source, topic)
    group = f"{topic}-group"
    commit(source, group, {(topic, 0): 9})
    Mirror(route(source, destination, topic, topic), spark, tmp_path).failover()
    assert rows(destination, topic) == rows(source, topic)
    assert first(destination, group, topic) == first(source, group, topic) == b"2-1"
