"""Topics and records for the tests, and the rows of a DataFrame in a form that can be compared."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

SECOND_MS = 1000
BEGAN_MS = 1_700_000_000_000


class Record(NamedTuple):
    value: bytes | None
    partition: int = 0
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    timestamp_ms: int = BEGAN_MS


class Topics:
    """An admin and a producer of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.producer = self._producer()

    def _producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(60)
        while name in self.admin.list_topics(timeout=30).topics:
            time.sleep(0.05)

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(60)
        while len(self.admin.list_topics(name, timeout=30).topics[name].partitions) < partitions:
            time.sleep(0.05)
        self.producer = self._producer()  # librdkafka would find out after a while

    def produce(self, topic: str, records: Iterable[Record | bytes], producer: Producer | None = None) -> None:
        """Returns when they are stored. Values alone go to partition 0."""
        to = producer or self.producer
        for each in records:
            record = each if isinstance(each, Record) else Record(each)
            to.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp_ms,
                headers=record.headers,
            )
        assert to.flush(60) == 0

    def transactional(self, name: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        return producer

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        at = TopicPartition(topic, partition, before)
        self.admin.delete_records([at])[at].result(60)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        from confluent_kafka import ConsumerGroupTopicPartitions

        found = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
        return {(at.topic, at.partition): at.offset for at in found.topic_partitions}

    def read(self, topic: str, count: int) -> list[Any]:
        """The first messages of a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reads-{topic}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        found = consumer.consume(count, 60)
        consumer.close()
        return list(found)


def numbered(count: int, partitions: int = 1, first: int = 0) -> Iterator[Record]:
    """Values b"0", b"1", ... by turns in partitions, a second apart."""
    for number in range(first, first + count):
        yield Record(b"%d" % number, number % partitions, timestamp_ms=BEGAN_MS + number * SECOND_MS)


def rows(table: Any) -> list[tuple[Any, ...]]:
    """All rows of a DataFrame with the columns of a topic, by partition and offset."""
    found = [tuple(row) for row in table.collect()]
    at = [table.columns.index(name) for name in ("topic", "partition", "offset")]
    return sorted(found, key=lambda row: tuple(row[index] for index in at))


def values(table: Any) -> list[int]:
    """What `numbered` wrote, in order."""
    return sorted(int(row.value) for row in table.select("value").collect())
