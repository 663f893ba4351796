"""A consumer group: its members share the partitions of all topics and count what they read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, TopicPartition


class Member(threading.Thread):
    """One consumer of the group. What it read is committed when it stops."""

    def __init__(self, bootstrap: str, group: str, name: str, topics: Sequence[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.read: Counter[str] = Counter()
        self.assignment: list[str] = []
        self.error: str | None = None
        self._topics = list(topics)
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "roundrobin",
                "log_level": 0,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while not self._stopped.is_set():
                for message in self._consumer.consume(500, 0.2):
                    error = message.error()
                    if error is None:
                        self.read[str(message.topic())] += 1
                    elif error.code() != KafkaError._PARTITION_EOF:
                        self.error = error.str()
        finally:
            self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignment = sorted(f"{p.topic}-{p.partition}" for p in partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignment = []

    def stop(self) -> None:
        self._stopped.set()


class Group:
    """Members that run side by side."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], size: int = 2) -> None:
        self.members = [Member(bootstrap, group, f"{group}-{number}", topics) for number in range(1, size + 1)]
        for member in self.members:
            member.start()

    def total(self) -> Counter[str]:
        return sum((member.read for member in self.members), Counter())

    def stop(self) -> None:
        for member in self.members:
            member.stop()
        for member in self.members:
            member.join()
