"""Settings of share groups that only Ottla has, with stock consumers, Java's and franz-go's: order by key, back-off
between deliveries, time of delivery. The rules themselves are in tests/property/share_queue.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.conformance.groups.raw_share_member import GROUP, alter, create
from tests.conformance.groups.share_consumers import GO, JAVA, Consumer, Delivered, configure, program, write
from tests.conformance.line_program import Program
from tests.node import NodeProcess

SETTINGS = {"group.share.min.heartbeat.interval.ms": "500", "group.share.heartbeat.interval.ms": "500"}

Join = Callable[[], Consumer]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("share") / "data", SETTINGS) as node:
        yield node.bootstrap


@pytest.fixture(scope="module", params=[JAVA, GO])
def members(request: pytest.FixtureRequest) -> Iterator[Program]:
    started = program(request.param)
    yield started
    started.close()


@pytest.fixture
def join(members: Program, bootstrap: str, topic: str) -> Iterator[Join]:
    """A group that begins with the first record, and its topic, named alike."""
    create(bootstrap, topic)
    configure(bootstrap, topic, auto_offset_reset="earliest")
    joined: list[Consumer] = []

    def new() -> Consumer:
        joined.append(Consumer(members, bootstrap, topic, topic))
        return joined[-1]

    yield new
    for each in joined:
        each.close()


def ours(bootstrap: str, group: str, **settings: str) -> None:
    """Set `ottla.share.NAME` of a group; with underscores for dots."""
    named: dict[str, str | None] = {f"ottla.share.{name.replace('_', '.')}": value for name, value in settings.items()}
    assert alter(bootstrap, GROUP, group, named)[0] == 0


def values(records: list[Delivered]) -> list[str]:
    return [each.value for each in records]


def test_records_of_a_key_come_one_at_a_time_and_in_order(join: Join, bootstrap: str, topic: str) -> None:
    ours(bootstrap, topic, order="key")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for key, value in ("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("a", "a3"):
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(60) == 0
    first = join()
    found = first.some()
    assert values(found) == ["a1", "b1", "c1"]
    second = join()  # not before: franz-go's member fetches before it is polled
    assert second.none_left(), "a2 waits for a1, whoever asks"
    first.acknowledge("RELEASE", found[:1])
    first.finish(found[1:])
    seen: list[tuple[str, int]] = []
    while len(seen) < 3:
        for each in (first, second):
            some = each.poll(200)
            seen += [(record.value, record.count) for record in some]
            each.finish(some)
    assert seen == [("a1", 2), ("a2", 1), ("a3", 1)]


def test_a_released_record_comes_back_after_its_back_off(join: Join, bootstrap: str, topic: str) -> None:
    ours(bootstrap, topic, retry_backoff_ms="800", retry_backoff_max_ms="60000")
    write(bootstrap, topic, ["again", "fine"])
    worker = join()
    found = worker.some()
    assert values(found) == ["again", "fine"]
    for wait_s in (0.8, 1.6):
        worker.acknowledge("RELEASE", found[:1])
        released_s = time.monotonic()
        worker.finish(found[1:])
        found = worker.some()
        assert (values(found), time.monotonic() - released_s >= wait_s) == (["again"], True), wait_s
    worker.finish(found)
    assert worker.none_left()


def test_a_record_comes_at_its_time_and_others_before(join: Join, bootstrap: str, topic: str) -> None:
    ours(bootstrap, topic, delivery_time_header="at")
    worker = join()
    write(bootstrap, topic, ["joined"])
    worker.take(1)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for ahead_s in (2, 8, 32):  # a busy machine may take longer than that for the first
        due_s = time.time() + ahead_s
        producer.produce(topic, "later", partition=0, headers=[("at", b"%d" % (due_s * 1000))])
        producer.produce(topic, "now", partition=0)
        assert producer.flush(60) == 0
        found = worker.take(1)
        if time.time() < due_s:
            break
        worker.take(2 - len(found))
    assert values(found) == ["now"]
    assert values(worker.take(1)) == ["later"]
    assert time.time() >= due_s - 0.001
