"""Clients that survive changes of the broker: a producer, two readers, and a producer by hand that sends again."""

from __future__ import annotations

import collections
import contextlib
import logging
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaError, Producer, TopicPartition

from tests.conformance.drop_in.drop_in import batches
from tests.conformance.operations.operations import DEADLINE_S, Client

TOPIC = "numbers"
PARTITIONS = 3
_QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}


class _Kept(logging.Handler):
    """Without a lock or a format: it is called from librdkafka's threads for everything that they do."""

    def __init__(self, lines: collections.deque[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{time.strftime('%X')} {record.getMessage()}")


class Numbers:
    """One idempotent producer of 0, 1, 2, ... for all its life."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.failed: list[Any] = []
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4", **_QUICK}
        self._producer = Producer({**settings, "batch.num.messages": 40, "linger.ms": 2})

    def send(self, count: int) -> None:
        """Hand over the next `count` numbers, whether there is a broker or not."""
        for number in range(self.sent, self.sent + count):
            self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
        self.sent += count

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self.failed.append(error)

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.failed == []


class Reader:
    """A group's member that commits what it has read, with `metadata`; it stays over changes unless `leave` is said."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.read: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self._log: collections.deque[str] = collections.deque(maxlen=300)
        """The end of what librdkafka says that it does, for a reader that gets no further."""
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            **_QUICK,
            "auto.offset.reset": "error",
            "log_level": 7,
            "debug": "broker,cgrp,consumer,metadata,topic",
        }
        self._consumer: Consumer | None = None
        self._begun = False

    def read_until(self, count: int) -> None:
        """Read on from the committed offsets until `count` numbers were read in all, and commit them."""
        consumer = self._joined()
        deadline = time.monotonic() + DEADLINE_S
        while sum(map(len, self.read.values())) < count:
            counts = {partition: len(read) for partition, read in self.read.items()}
            assert time.monotonic() < deadline, "\n".join([f"read {counts}", *self._log])
            for message in consumer.consume(count, timeout=0.2):
                error = message.error()
                if error is None:
                    self.read[message.partition() or 0].append(int(message.value() or b""))
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise AssertionError(error)
        self._begun = True
        ends = [
            TopicPartition(TOPIC, partition, len(read), f"read {len(read)} ✓") for partition, read in self.read.items()
        ]
        while True:
            with contextlib.suppress(Exception):  # the group may be in a rebalance because of the change
                consumer.commit(offsets=ends, asynchronous=False)
                return
            assert time.monotonic() < deadline, "nothing could be committed"
            consumer.poll(0.1)

    def _joined(self) -> Consumer:
        if self._consumer is None:
            logger = logging.Logger("reader")
            logger.addHandler(_Kept(self._log))
            self._consumer = Consumer(self._settings, logger=logger)
            self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        return self._consumer

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Only the first time from the beginning; later an offset that is lost is an error."""
        for each in partitions:
            each.offset = OFFSET_STORED if self._begun else OFFSET_BEGINNING
        consumer.assign(partitions)

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class Resender:
    """An idempotent producer without a library, so that it can send its last batch again."""

    def __init__(self, client: Client, topic: str) -> None:
        self.topic = topic
        self.producer_id = client.producer_id()
        self.answers: list[tuple[int, int]] = []
        """(sequence, offset) of each batch."""

    def send(self, client: Client, count: int) -> None:
        for _ in range(count):
            sequence = 2 * len(self.answers)
            answer = self._produce(client, sequence)
            assert answer["error"] == "none", answer
            self.answers.append((sequence, answer["base_offset"]))

    def send_again(self, client: Client, count: int = 1) -> None:
        """The last batches are known for what they are, wherever they were written."""
        end = client.offset(self.topic, -1)
        for sequence, offset in self.answers[-count:]:
            answer = self._produce(client, sequence)
            assert (answer["error"], answer["base_offset"]) == ("none", offset), answer
        assert client.offset(self.topic, -1) == end
        answer = self._produce(client, self.answers[-1][0] + 4)
        assert answer["error"] == "out_of_order_sequence_number", answer

    def send_older_again(self, client: Client) -> str:
        """The answer to the batch before the last."""
        return str(self._produce(client, self.answers[-2][0])["error"])

    def _produce(self, client: Client, sequence: int) -> Any:
        options: dict[str, int] = {"producer_id": self.producer_id, "producer_epoch": 0, "base_sequence": sequence}
        return client.produce(self.topic, b"%d" % sequence, b"%d" % (sequence + 1), **options)


def one_row(client: Client, topic: str, partition: int = 0) -> tuple[int, int, int]:
    """(producer id, epoch, records) of a partition that one producer wrote, its sequence from 0 without a break."""
    found = batches(client, topic, partition)
    owners = {(header.producer_id, header.producer_epoch) for header in found}
    assert len(owners) == 1, owners
    following = 0
    for header in found:
        assert header.base_sequence == following, header
        following = header.last_sequence + 1
    assert found[-1].next_offset == following
    return (*owners.pop(), following)
