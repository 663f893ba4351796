"""Three nodes, one of which is killed: no timeout is waited for, nothing is lost, groups go on without a rebalance."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.messages import ApiKey
from ottla.testing import Cluster
from tests.cluster.admin import ask, quorum, until

PATIENT = {
    "broker.session.timeout.ms": "3600000",
    "controller.quorum.fetch.timeout.ms": "3600000",
}
"""A test that needed these to end would not end."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, PATIENT, topics={"t": 3}) as started:
        yield started


def controller(cluster: Cluster) -> int:
    """The node that leads the quorum, as one says that runs."""

    def find() -> int:
        for address in cluster.addresses.values():
            try:
                return int(quorum(address)["leader_id"])
            except OSError:
                continue
        return -1

    return until(find, lambda found: found > 0)


def acknowledged(cluster: Cluster, partition: int, *values: str) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 60_000, "log_level": 0})
    for value in values:
        producer.produce("t", value, partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None] * len(values)


def values(cluster: Cluster, partition: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", partition, 0)])
    found = []
    try:
        while (message := consumer.poll(60)) is not None and not message.error():
            found.append(message.value().decode())
    finally:
        consumer.close()
    return found


def test_a_killed_leader_is_replaced_at_once(cluster: Cluster) -> None:
    """By a follower, though its session would go on for an hour; and it comes back into the set of those in sync."""
    partition = next(each for each in range(3) if cluster.leader("t", each) != controller(cluster))
    acknowledged(cluster, partition, "a")
    killed = cluster.leader("t", partition)
    cluster.kill(killed)
    acknowledged(cluster, partition, "b")
    assert cluster.leader("t", partition) != killed
    cluster.restart(killed)
    asked = {"topics": [{"name": "t", "topic_id": None}], "allow_auto_topic_creation": False}
    until(
        lambda: ask(cluster.addresses[killed], ApiKey.METADATA, 12, asked)["topics"][0]["partitions"],
        lambda found: len(found) == 3 and all(len(each["isr_nodes"]) == 3 for each in found),
    )
    assert values(cluster, partition) == ["a", "b"]


def test_a_killed_controller_is_replaced_at_once(cluster: Cluster) -> None:
    """Also as the broker that it was: the next controller asks who of the brokers is there."""
    killed = controller(cluster)
    partition = next(each for each in range(3) if cluster.leader("t", each) == killed)
    acknowledged(cluster, partition, "a")
    cluster.kill(killed)
    acknowledged(cluster, partition, "b")
    assert controller(cluster) != killed
    assert values(cluster, partition) == ["a", "b"]


def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: Cluster) -> None:
    """On what the log of its partition says: nobody is asked to join again, and no commit is lost."""
    assignments: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "enable.auto.commit": False,
            "session.timeout.ms": 300_000,
            "max.poll.interval.ms": 400_000,
        }
    )
    consumer.subscribe(["t"], on_assign=lambda _, places: assignments.append(len(places)))
    for each in range(3):
        acknowledged(cluster, each, "before")
    assert read(consumer, 3) == ["before"] * 3
    consumer.commit(asynchronous=False)
    cluster.kill(coordinator(cluster))
    for each in range(3):
        acknowledged(cluster, each, "after")
    assert read(consumer, 3) == ["after"] * 3
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition("t", each) for each in range(3)], timeout=60)
    assert [each.offset for each in committed] == [2, 2, 2]
    assert assignments == [3]
    consumer.close()


def read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + 120
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            found.append(message.value().decode())
    return found


def coordinator(cluster: Cluster) -> int:
    """The coordinator of the group."""
    asked = {"key_type": 0, "coordinator_keys": ["g"]}
    answer = ask(next(iter(cluster.addresses.values())), ApiKey.FIND_COORDINATOR, 4, asked)
    return int(answer["coordinators"][0]["node_id"])


def test_a_controlled_restart_of_each_node_fails_no_request(cluster: Cluster) -> None:
    """A producer that does not try again: whoever is asked serves, or says who leads instead, before it is gone."""
    failed: list[Any] = []
    ended = threading.Event()
    sent = 0

    def produce() -> None:
        nonlocal sent
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 30_000, "log_level": 0})
        while not ended.is_set():
            producer.produce("t", b"x", partition=sent % 3, on_delivery=lambda error, _: failed.append(error))
            sent += 1
            producer.poll(0.005)
        producer.flush(60)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for node in cluster.nodes:
            cluster.restart(node)
            for each in range(3):
                acknowledged(cluster, each, "y")
    finally:
        ended.set()
        thread.join()
    assert len(failed) == sent > 100
    assert set(failed) == {None}
