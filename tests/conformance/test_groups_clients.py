"""Real clients in groups: cooperative rebalances, static members, clients of different make, a killed coordinator."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from peers.kafka import tool
from tests.node import NodeProcess

DEADLINE_S = 40


def prepare(bootstrap: str, topic: str, partitions: int, records: int = 0) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(30) == 0


class Member:
    """A librdkafka consumer that remembers what it was given, what it lost and what it read."""

    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        base = {
            "bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, "topic.metadata.refresh.interval.ms": 1_000,
        }  # fmt: skip
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


def test_clients_of_different_make_share_a_group(bootstrap: str, topic: str) -> None:
    prepare(bootstrap, topic, 3, records=300)
    seen: set[bytes] = set()
    member = Member(bootstrap, topic, **{"partition.assignment.strategy": "range"})
    done = threading.Event()

    def console_consumer() -> None:
        printed = tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic,
            "--group", f"g-{topic}", "--timeout-ms", "8000", "--command-property", "auto.offset.reset=earliest",
            "--command-property", "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor",
        ).stdout  # fmt: skip
        seen.update(line.encode() for line in printed.splitlines())

    def keep_polling() -> None:
        while not done.is_set():
            member.poll()

    async def until_each_has_one() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest",
            partition_assignment_strategy=(RangePartitionAssignor,), heartbeat_interval_ms=200,
        )  # fmt: skip
        async with consumer:
            deadline = time.monotonic() + DEADLINE_S
            while not (len(consumer.assignment()) == 1 and len(member.held) == 1):
                assert time.monotonic() < deadline, (consumer.assignment(), member.held)
                for messages in (await consumer.getmany(timeout_ms=20)).values():
                    seen.update(message.value for message in messages)

    threads = [threading.Thread(target=work, daemon=True) for work in (console_consumer, keep_polling)]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(until_each_has_one())
        threads[0].join(DEADLINE_S)
    finally:
        done.set()
        threads[1].join()
    until([member], lambda: len(member.held) == 3 and len({*member.values, *seen}) == 300)
    member.consumer.close()


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
    assert producer.flush(30) == 0
    until([member], lambda: len(member.values) == 210)
    assert len(set(member.values)) == 210, "nothing was read twice"
    member.consumer.commit(asynchronous=False)
    member.consumer.close()
    group = f"g-{topic}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    assert sorted((each.partition, each.offset) for each in listed.topic_partitions) == [(0, 105), (1, 105)]
