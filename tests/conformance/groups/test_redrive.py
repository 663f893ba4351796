"""`ottla share redrive` with a share consumer of Kafka 4.4.0, with more letters than are kept in memory, and killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.share.redrive import LETTERS_AT_ONCE
from ottla.protocol.messages import ApiKey
from peers.kafka import cache
from tests.conformance.groups.raw_share_member import GROUP, alter, create, raise_share_version
from tests.conformance.groups.share_consumers import Consumer, Delivered, write
from tests.conformance.groups.test_dead_letters import SETTINGS, letters, run
from tests.conformance.line_program import Program, java_program
from tests.conformance.pair import Wire
from tests.node import NodeProcess
from tests.unit.client.test_producing import read

LETTERS = 10_500
KILLS = 4
SEED = 7


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", SETTINGS) as node:
        raise_share_version(node.bootstrap)
        yield node.bootstrap


@pytest.fixture
def java() -> Iterator[Program]:
    if not (cache("4.4") / "libs").is_dir():
        pytest.skip("needs the jars of Apache Kafka 4.4: python -m peers.kafka install")
    started = Program(java_program("ShareConsumerLines", "4.4"))
    yield started
    started.close()


def test_a_poison_record_of_a_java_consumer_dies_and_is_put_back(bootstrap: str, java: Program) -> None:
    """One record is released until it may not be delivered again, one is rejected, the others are accepted."""
    create(bootstrap, "jobs")
    create(bootstrap, "dlq.jobs", 1, errors_deadletterqueue_group_enable="true")
    settings: dict[str, str | None] = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "3",
        "errors.deadletterqueue.topic.name": "dlq.jobs",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    assert alter(bootstrap, GROUP, "workers", settings)[0] == 0
    write(bootstrap, "jobs", ["fine", "poison", "bad", "well"])
    worker = Consumer(java, bootstrap, "workers", "jobs")
    deliveries: Counter[str] = Counter()

    def work(until: int) -> None:
        """Handles what is delivered until so many records were."""
        while deliveries.total() < until:
            for each in worker.some():
                deliveries[each.value] += 1
                worker.acknowledge({"poison": "RELEASE", "bad": "REJECT"}.get(each.value, "ACCEPT"), [each])
            assert worker.commit() == {}

    work(6)
    assert deliveries == {"fine": 1, "poison": 3, "bad": 1, "well": 1}
    dead = {value: dict(headers) for _, _, _, value, headers, _ in letters(bootstrap, "dlq.jobs", 2)}
    assert set(dead) == {b"poison", b"bad"}
    for value, (offset, count) in {b"poison": (b"1", b"3"), b"bad": (b"2", b"1")}.items():
        expected = {"group": b"workers", "topic": b"jobs", "partition": b"0", "offset": offset, "delivery.count": count}
        assert {name: dead[value][f"__dlq.errors.{name}"] for name in expected} == expected
    assert worker.none_left(2)

    assert json.loads(run(bootstrap, "redrive", "workers", "--execute", "--json"))["put_back"] == 2
    again: list[Delivered] = []
    while len(again) < 2:
        again += (some := worker.some())
        worker.finish(some)
    assert sorted((each.value, each.count) for each in again) == [("bad", 1), ("poison", 1)]
    assert json.loads(run(bootstrap, "redrive", "workers", "--execute", "--json"))["put_back"] == 0
    assert worker.none_left(2)
    worker.close()


def write_letters(bootstrap: str, topic: str, source: str, count: int) -> None:
    """Letters with payloads, every tenth of another group, in both partitions of `topic`."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(count):
        context = {
            "group": "other" if number % 10 == 9 else "g",
            "topic": source,
            "partition": str(number % 3),
            "offset": str(number),
            "delivery.count": "1",
            "message": "rejected" if number % 2 else "deliveries",
        }
        headers: list[tuple[str, Any]] = [(f"__dlq.errors.{name}", value.encode()) for name, value in context.items()]
        producer.produce(topic, str(number), partition=number % 2, headers=[("own", b""), *headers])
        producer.poll(0)
    assert producer.flush(60) == 0


def position(bootstrap: str) -> int:
    """How many letters the commits of the redrive of group g have passed."""
    topics = [{"name": "graves", "partition_indexes": [0, 1]}]
    asked = {"groups": [{"group_id": "ottla-redrive.g", "topics": topics}], "require_stable": False}
    (group,) = Wire(bootstrap).ask(ApiKey.OFFSET_FETCH, 8, asked)["groups"]
    return sum(max(0, part["committed_offset"]) for topic in group["topics"] for part in topic["partitions"])


def test_a_redrive_that_is_killed_puts_each_letter_back_once(bootstrap: str) -> None:
    """More letters than are read at once, killed at any moment, and run again to the end: in one run then."""
    create(bootstrap, "source", 3)
    create(bootstrap, "graves", 2)
    write_letters(bootstrap, "graves", "source", LETTERS)
    wanted = LETTERS - LETTERS // 10
    assert wanted > LETTERS_AT_ONCE
    planned = json.loads(run(bootstrap, "redrive", "g", "--dead-topic", "graves", "--json"))
    assert (planned["chosen"], planned["left"]) == (wanted, 0)
    command = [sys.executable, "-m", "ottla", "share", "redrive", "g", "--dead-topic", "graves", "--execute", "--json"]
    dice = random.Random(SEED)
    amid = 0
    for _ in range(KILLS):
        before = position(bootstrap)
        process = subprocess.Popen([*command, "-b", bootstrap], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while position(bootstrap) == before and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 0.05))
        process.kill()
        process.wait()
        amid += before < position(bootstrap) < LETTERS
    assert amid > 1, "hardly a process was killed in the midst"
    last = json.loads(run(bootstrap, "redrive", "g", "--dead-topic", "graves", "--execute", "--json"))
    assert last["left"] == 0 and last["put_back"] + last["put_back_before"] <= wanted
    found = Counter(int(each.value()) for each in read(bootstrap, "source", 3))
    assert found == Counter(number for number in range(LETTERS) if number % 10 != 9)
    assert position(bootstrap) == LETTERS
    assert json.loads(run(bootstrap, "redrive", "g", "--dead-topic", "graves", "--execute", "--json"))["chosen"] == 0
