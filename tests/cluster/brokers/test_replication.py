"""Three real brokers and a controller: records outlive a killed leader, a killed follower and a wiped disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.protocol.messages import ApiKey
from tests.cluster.admin import ask, create, in_sync_sets, leaders, until
from tests.cluster.brokers.test_life import consume, produce
from tests.cluster.processes import BROKERS, addresses, three_brokers
from tests.node import NodeProcess

SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[dict[int, NodeProcess]]:
    with three_brokers(tmp_path, lambda node_id, data: SETTINGS) as nodes:
        yield nodes


def wait_in_sync(nodes: dict[int, NodeProcess], topic: str, *expected: int) -> None:
    """Until exactly these replicas of each partition are in sync."""
    alive = next(node for node in nodes.values() if node.process is not None)
    until(lambda: in_sync_sets(alive.bootstrap, topic), lambda found: all(each == sorted(expected) for each in found))


def test_what_was_acknowledged_outlives_a_killed_leader(three: dict[int, NodeProcess]) -> None:
    assert create(three[1].bootstrap, "t", 3, factor=3) == 0
    values = [f"first-{number}" for number in range(1000)]
    produce(addresses(three), "t", values)
    victim = leaders(three[1].bootstrap, "t")[0][0]
    three[victim].kill()
    alive = {node_id: node for node_id, node in three.items() if node_id != victim}
    more = [f"second-{number}" for number in range(1000)]
    produce(addresses(alive), "t", more)
    assert set(consume(addresses(alive), "t")) == {*values, *more}
    wait_in_sync(three, "t", *alive)
    three[victim].start()
    wait_in_sync(three, "t", *BROKERS)
    for node_id in alive:  # what came back has everything
        three[node_id].stop()
    assert set(consume(three[victim].bootstrap, "t")) == {*values, *more}


def test_a_wiped_disk_is_filled_again(three: dict[int, NodeProcess]) -> None:
    assert create(three[1].bootstrap, "t", 3, factor=3) == 0
    values = [f"first-{number}" for number in range(1000)]
    large = [f"{number}" * 100_000 for number in range(10, 34)]  # partitions that come in pieces
    produce(addresses(three), "t", values + large)
    three[2].kill()
    shutil.rmtree(three[2].data)
    three[2].start()
    wait_in_sync(three, "t", *BROKERS)
    produce(addresses(three), "t", ["last"])
    for name in ("t-0", "t-1", "t-2"):
        whole = {(three[node_id].data / name / f"{0:020}.log").read_bytes() for node_id in BROKERS}
        assert len(whole) == 1 and whole != {b""}


def coordinator(address: str, group: str) -> int:
    """The node that coordinates a group, -1 while there is none."""
    answer = ask(address, ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
    return int(answer["coordinators"][0]["node_id"])


def test_a_group_moves_with_its_coordinator(three: dict[int, NodeProcess]) -> None:
    """Its commits are there and its members go on, without a rebalance."""
    assert create(three[1].bootstrap, "t", 1, factor=3) == 0
    produce(addresses(three), "t", [str(number) for number in range(10)])
    assigned: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": addresses(three),
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
        }
    )
    consumer.subscribe(["t"], on_assign=lambda *_: assigned.append(1))

    def read(count: int) -> list[str]:
        values: list[str] = []
        until(
            lambda: values.extend(
                (m.value() or b"").decode() for m in consumer.consume(count - len(values), 1) if not m.error()
            ),
            lambda _: len(values) == count,
        )
        return values

    try:
        assert read(5) == [str(number) for number in range(5)]
        consumer.commit(asynchronous=False)
        victim = coordinator(three[1].bootstrap, "g")
        three[victim].kill()
        alive = {node_id: node for node_id, node in three.items() if node_id != victim}
        survivor = next(iter(alive.values())).bootstrap
        until(lambda: coordinator(survivor, "g"), lambda found: found in alive)
        assert read(5) == [str(number) for number in range(5, 10)]
        until(lambda: committed(consumer), lambda done: done)
        assert consumer.committed([TopicPartition("t", 0)], 60)[0].offset == 10
        assert assigned == [1]
    finally:
        consumer.close()


def committed(consumer: Consumer) -> bool:
    """Whether a commit went through: a coordinator that has just moved may have to load first."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return False
    return True


def test_an_idempotent_producer_writes_each_record_once_while_leaders_are_killed(three: dict[int, NodeProcess]) -> None:
    """A new leader knows from the batches that it fetched what the producer has written (reliability.md, 7 and 18)."""
    assert create(three[1].bootstrap, "t", 1, factor=3) == 0
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": addresses(three),
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            "linger.ms": 0,
        }
    )
    expected = []
    for turn in range(2):
        victim = leaders(three[1].bootstrap, "t")[0][0]
        for number in range(300):
            expected.append(f"{turn}-{number}")
            producer.produce("t", expected[-1], on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(0)
            if number == 150:
                three[victim].kill()
        assert producer.flush(120) == 0
        three[victim].start()
        wait_in_sync(three, "t", *BROKERS)
    assert failed == []
    assert consume(addresses(three), "t") == expected


def test_a_log_that_is_lost_is_fetched_again(three: dict[int, NodeProcess]) -> None:
    """Its directory is gone, though a checkpoint says that it was there: a single node would keep it offline."""
    assert create(three[1].bootstrap, "t", 1, factor=3) == 0
    values = [str(number) for number in range(500)]
    produce(addresses(three), "t", values)
    wait_in_sync(three, "t", *BROKERS)
    three[2].stop()
    shutil.rmtree(three[2].data / "t-0")
    three[2].start()
    wait_in_sync(three, "t", *BROKERS)
    logs = {(three[node_id].data / "t-0" / f"{0:020}.log").read_bytes() for node_id in BROKERS}
    assert len(logs) == 1
    assert "a damaged log is fetched again from its leader" in three[2].output.read_text()
