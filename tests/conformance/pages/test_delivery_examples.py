"""The examples of `docs/reference/guarantees.md`, and what a crash in the middle of each leaves behind."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import Broker

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "reference" / "examples"
COUNT = 30
FATAL = 17
"""The number of the order at which the program dies the first time."""


class Crash(Exception):
    """In the middle of the work."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 1, "bills": 1}) as started:
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(COUNT):
            producer.produce("orders", str(number))
        assert producer.flush(60) == 0
        yield started


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dies_once(work: Callable[[bytes], None]) -> Callable[[bytes], bytes]:
    """Does the work, and at FATAL dies when half of it is done."""
    dead: list[bytes] = []

    def handle(value: bytes) -> bytes:
        if int(value) == FATAL and not dead:
            dead.append(value)
            raise Crash
        work(value)
        return value

    return handle


def committed(bootstrap: str) -> list[int]:
    """The bills that a read_committed consumer sees."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition("bills", 0, 0)])
    found = []
    try:
        while (message := consumer.poll(60)) is not None and not message.error():
            found.append(int(message.value()))
    finally:
        consumer.close()
    assert message is not None, "the end did not come"
    return found


def run_twice(run: Callable[[str, Callable[[bytes], Any]], None], bootstrap: str, handle: Any) -> None:
    """It dies, and is started again."""
    with pytest.raises(Crash):
        run(bootstrap, handle)
    run(bootstrap, handle)


def test_at_most_once(broker: Broker) -> None:
    handled: list[int] = []
    run_twice(example("at_most_once").read, broker.bootstrap, dies_once(lambda value: handled.append(int(value))))
    assert handled == [number for number in range(COUNT) if number != FATAL], "the one in hand is lost, and no other"


def test_at_least_once(broker: Broker) -> None:
    handled: list[int] = []

    def work(value: bytes) -> None:
        handled.append(int(value))
        if handled.count(FATAL) == 1 and handled[-1] == FATAL:
            raise Crash  # all is done but to say so

    run_twice(example("at_least_once").read, broker.bootstrap, work)
    assert handled == [*range(FATAL + 1), *range(FATAL, COUNT)], "the one in hand is handled again, and no other"


def test_exactly_once(broker: Broker) -> None:
    seen: list[int] = []
    run_twice(example("exactly_once").copy, broker.bootstrap, dies_once(lambda value: seen.append(int(value))))
    assert len(seen) > COUNT, "orders were transformed twice"
    assert committed(broker.bootstrap) == [*range(COUNT)], "and billed once"
