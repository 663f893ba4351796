"""Helpers for tests of the mirror with two clusters."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla import arrow
from ottla.mirror.mirror import Route


def route(source: str, other: str, topic: str) -> Route:
    """One topic and its groups. The names of the clusters are the topic's too, so that tests do not meet."""
    return Route(f"a{topic}", source, f"b{topic}", other, topic, f"{topic}-.*")


def rows(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Committed records, without offsets."""
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


def first(bootstrap: str, group: str, topic: str) -> bytes | None:
    """The value of the record at which a group goes on in partition 0; None where it has read everything."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
    )
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


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [row[2] for row in rows(bootstrap, topic)]
