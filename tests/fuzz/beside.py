"""librdkafka's clients at work on a node that is attacked meanwhile: what they wrote is what they read.

A producer with idempotence numbers the records of each partition. One consumer reads all partitions by itself, two
share them in a group: each sees contiguous offsets, at each offset the record of that number.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "kept"
PARTITIONS = 3
DEADLINE_S = 180.0
PAUSE_S = 0.002
"""Between two records: data flows, but leaves the node time for the attack."""


class Work:
    """The clients of one run, in threads. `problems` is what went wrong."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.problems: list[str] = []
        self.written: Counter[int] = Counter()
        """Records by partition, all acknowledged once the producer has ended."""
        self.read: dict[str, Counter[int]] = {}
        """Records by consumer and partition."""
        self.group_seen: set[tuple[int, int]] = set()
        """(partition, offset) of what the group has read."""
        self.over = threading.Event()
        self.ended = threading.Event()
        """The producer has, and `written` is final."""
        self.threads = [
            threading.Thread(target=self.run, args=(function, *arguments))
            for function, *arguments in (
                (self.produce,),
                (self.consume, "alone"),
                (self.consume, "member 1"),
                (self.consume, "member 2"),
            )
        ]

    def start(self) -> None:
        new = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # a pending call fails when its client is collected
        admin.create_topics([new])[TOPIC].result(60)
        for each in self.threads:
            each.start()

    def finish(self) -> None:
        """End the producer, and wait until all was read."""
        self.over.set()
        for each in self.threads:
            each.join()
        everything = {(part, offset) for part in range(PARTITIONS) for offset in range(self.written[part])}
        if self.group_seen != everything:
            self.problems.append(f"the group read {len(self.group_seen)} of {len(everything)}")

    def run(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException as error:
            self.problems.append(f"{function.__name__} {arguments}: {error!r}")
        finally:
            if function == self.produce:
                self.ended.set()

    def produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(DEADLINE_S * 1000),
            }
        )

        def delivered(error: Any, message: Any) -> None:
            if error is not None or int(message.value()) != message.offset():
                self.problems.append(f"produced {message.value()!r} at {message.offset()}: {error}")

        while not self.over.is_set():
            partition = sum(self.written.values()) % PARTITIONS
            producer.produce(TOPIC, b"%d" % self.written[partition], partition=partition, on_delivery=delivered)
            self.written[partition] += 1
            producer.poll(0)
            time.sleep(PAUSE_S)
        if producer.flush(DEADLINE_S):
            self.problems.append("records were not delivered in time")

    def consume(self, name: str) -> None:
        alone = name == "alone"
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": name if alone else "members",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "enable.auto.commit": not alone,
            }
        )
        expected: dict[int, int] = {}
        read = self.read[name] = Counter()
        if alone:
            consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
            expected = dict.fromkeys(range(PARTITIONS), 0)
        else:
            consumer.subscribe([TOPIC], on_assign=lambda _, given: [expected.pop(each.partition, 0) for each in given])
        deadline = time.monotonic() + 10 * DEADLINE_S
        while not self.all_read(read if alone else None):
            if self.ended.is_set():
                deadline = min(deadline, time.monotonic() + DEADLINE_S)
            if time.monotonic() > deadline or self.problems:
                break
            for message in consumer.consume(500, 0.2):
                if message.error() is not None:
                    self.problems.append(f"{name}: {message.error()}")
                    break
                part, offset = message.partition(), message.offset()
                if offset != expected.get(part, offset) or int(message.value()) != offset:
                    self.problems.append(f"{name}: {message.value()!r} at {offset} of {part}, not {expected.get(part)}")
                expected[part] = offset + 1
                read[part] += 1
                if not alone:
                    self.group_seen.add((part, offset))
        consumer.close()

    def all_read(self, read: Counter[int] | None) -> bool:
        if not self.ended.is_set():
            return False
        return read == self.written if read is not None else len(self.group_seen) >= self.written.total()
