"""Real clients in groups: cooperative rebalances, static members, a killed coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.node import NodeProcess

DEADLINE_S = 300


def prepare(bootstrap: str, topic: str, partitions: int, records: int = 0) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(300)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(300) == 0


class Member:
    """A librdkafka consumer that remembers what it was given, what it lost and what it read."""

    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        base = {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1_000,
        }
        self.consumer = Consumer({**base, **config})
        self.held: set[int] = set()
        self.revoked: list[set[int]] = []
        self.values: list[bytes] = []
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.held |= {each.partition for each in partitions}

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        gone = {each.partition for each in partitions}
        self.held -= gone
        self.revoked.append(gone)

    def _lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._revoked(consumer, partitions)

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.values.append(message.value())


def until(members: list[Member], condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, [member.held for member in members]
        for member in members:
            member.poll()


@pytest.mark.client("confluent-kafka", "cooperative rebalances")
def test_a_cooperative_rebalance_takes_only_what_moves(bootstrap: str, topic: str) -> None:
    prepare(bootstrap, topic, 4)
    config = {"partition.assignment.strategy": "cooperative-sticky"}
    first = Member(bootstrap, topic, **config)
    until([first], lambda: len(first.held) == 4)
    second = Member(bootstrap, topic, **config)
    until([first, second], lambda: len(first.held) == len(second.held) == 2)
    assert first.held | second.held == {0, 1, 2, 3}
    assert first.revoked == [second.held]
    second.consumer.close()
    until([first], lambda: len(first.held) == 4)
    first.consumer.close()


@pytest.mark.client("confluent-kafka", "static members")
def test_a_static_member_that_restarts_disturbs_nobody(bootstrap: str, topic: str) -> None:
    prepare(bootstrap, topic, 4)
    one, two = (Member(bootstrap, topic, **{"group.instance.id": name}) for name in ("one", "two"))
    until([one, two], lambda: len(one.held) == len(two.held) == 2)
    before, one.revoked, two.revoked = two.held.copy(), [], []
    two.consumer.close()
    again = Member(bootstrap, topic, **{"group.instance.id": "two"})
    until([one, again], lambda: again.held == before)
    assert one.revoked == []
    again.consumer.close()
    one.consumer.close()


@pytest.mark.client("confluent-kafka", "goes on in its group when the coordinator is killed")
def test_a_group_goes_on_when_its_coordinator_was_killed(fresh_node: NodeProcess, topic: str) -> None:
    bootstrap = fresh_node.bootstrap
    prepare(bootstrap, topic, 2, records=200)
    member = Member(bootstrap, topic, **{"enable.auto.commit": False, "reconnect.backoff.max.ms": 200})
    until([member], lambda: len(member.values) == 200)
    member.consumer.commit(asynchronous=False)
    for _ in range(2):
        fresh_node.kill()
        fresh_node.start()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(200, 210):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(300) == 0
    until([member], lambda: len(member.values) == 210)
    assert len(set(member.values)) == 210, "nothing was read twice"
    member.consumer.commit(asynchronous=False)
    member.consumer.close()
    group = f"g-{topic}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(300)
    assert sorted((each.partition, each.offset) for each in listed.topic_partitions) == [(0, 105), (1, 105)]
