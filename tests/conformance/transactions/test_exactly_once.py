"""Consume, transform, produce, exactly once: copiers of several clients are killed midway, and so is the node."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import Broker
from peers.kafka import java
from tests.conformance.clients import build
from tests.oracle import RELEASE

PYTHON = Path(__file__).parent.parent / "clients" / "python"
COUNT = 400
ROUNDS_MAX = 40
COPIES = "copies a topic in transactions, each record once, while it and the node are killed"


def python_copier(name: str) -> Callable[[str], list[str]]:
    return lambda bootstrap: [sys.executable, str(PYTHON / name), bootstrap, "copier", "in", "out", str(COUNT)]


def java_copier(bootstrap: str) -> list[str]:
    """It asks for its position before it fences the one before it, and waits for 60 s at most: a transaction that was
    left open has to time out well before that."""
    return java(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        "--broker-list",
        bootstrap,
        "--transactional-id",
        "copier",
        "--consumer-group",
        "copier",
        "--input-topic",
        "in",
        "--input-partition",
        "0",
        "--output-topic",
        "out",
        "--max-messages",
        str(COUNT),
        "--transaction-size",
        "20",
        "--transaction-timeout",
        "10000",
        "--enable-random-aborts",
        release=RELEASE,
    )


def go_copier(bootstrap: str) -> list[str]:
    return [str(build.build("go") / "bin" / "franz-copier"), bootstrap, "copier", "in", "out", str(COUNT)]


class Copier:
    """A process that says how far it has come."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.progress: queue.Queue[int | None] = queue.Queue()
        self.errors: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.progress.put(json.loads(line)["totalProcessed"])
            elif line.strip().isdigit():
                self.progress.put(int(line))
        self.progress.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors += self.process.stderr

    def copies(self) -> bool:
        """Wait for a transaction of this process; False where it ended instead."""
        while (done := self.progress.get(timeout=180)) is not None:
            if done:
                return True
        return False

    def ended(self) -> bool:
        """Wait for its end; True where all was copied."""
        while self.progress.get(timeout=180) is not None:
            pass
        return self.process.wait(60) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(COUNT):
        producer.produce("in", str(number), partition=0)
    assert producer.flush(60) == 0


def read_committed(bootstrap: str, topic: str) -> list[str]:
    """The values of partition 0 that are committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "log_level": 0,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        while (message := consumer.poll(60)) is not None and not message.error():
            found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    assert message is not None, "the end of the topic did not come"
    return found


def copied(bootstrap: str) -> list[int]:
    return [int(each) for each in read_committed(bootstrap, "out")]


def copy(command: list[str], *strikes: Callable[[], None]) -> None:
    """Copy everything; at each strike somebody dies while it copies, and then the copier too."""
    for strike in strikes:
        copier = Copier(command)
        assert copier.copies(), "".join(copier.errors)
        strike()
        copier.kill()
    for _ in range(ROUNDS_MAX):
        copier = Copier(command)
        if copier.ended():
            return
    raise AssertionError("".join(copier.errors))


def nothing() -> None:
    """The copier alone dies."""


def restarts(broker: Broker) -> Callable[[], None]:
    def strike() -> None:
        broker.kill()
        broker.restart()

    return strike


@pytest.mark.client("confluent-kafka", COPIES)
def test_librdkafka() -> None:
    with Broker(topics={"in": 1, "out": 1}) as broker:
        fill(broker.bootstrap)
        copy(python_copier("confluent_copier.py")(broker.bootstrap), nothing, restarts(broker), nothing)
        assert copied(broker.bootstrap) == list(range(COUNT))


@pytest.mark.client("aiokafka", COPIES)
def test_aiokafka() -> None:
    with Broker(topics={"in": 1, "out": 1}) as broker:
        fill(broker.bootstrap)
        copy(python_copier("aiokafka_copier.py")(broker.bootstrap), nothing, restarts(broker), nothing)
        assert copied(broker.bootstrap) == list(range(COUNT))


@pytest.mark.client("TransactionalMessageCopier", COPIES)
def test_java() -> None:
    with Broker(topics={"in": 1, "out": 1}) as broker:
        fill(broker.bootstrap)
        copy(java_copier(broker.bootstrap), nothing, restarts(broker))
        assert copied(broker.bootstrap) == list(range(COUNT))


@pytest.mark.client("franz-go", COPIES)
@pytest.mark.matrix
def test_franz_go() -> None:
    if reason := build.missing("go"):
        pytest.skip(reason)
    with Broker(topics={"in": 1, "out": 1}) as broker:
        fill(broker.bootstrap)
        copy(go_copier(broker.bootstrap), nothing, restarts(broker), nothing)
        assert copied(broker.bootstrap) == list(range(COUNT))
