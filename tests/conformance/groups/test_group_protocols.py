"""Consumers with `group.protocol=consumer` (KIP-848): librdkafka's and Java's, on their own and beside classic ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from peers.kafka import tool
from tests.oracle import RELEASE

RECORDS = 40
DEADLINE_S = 30


@pytest.fixture
def topic(bootstrap: str) -> Iterator[str]:
    """With four partitions, ten records in each."""
    name = f"gp-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=number % 4)
    assert producer.flush(DEADLINE_S) == 0
    yield name
    admin.delete_topics([name])[name].result(DEADLINE_S)


def consumer(bootstrap: str, group: str, protocol: str = "consumer", **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def read(*consumers: Consumer, count: int) -> list[str]:
    """Poll each in turn until all have read `count` records between them."""
    found: list[str] = []
    polls = 0
    while len(found) < count:
        for each in consumers:
            message = each.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(bytes(message.value() or b"").decode())
        polls += 1
        assert polls < DEADLINE_S * 10, f"{len(found)} of {count}"
    return found


def wait_assigned(consumers: list[Consumer], *counts: int) -> None:
    """Until the consumers have so many partitions each, in any order."""
    for _ in range(int(DEADLINE_S * 10)):
        for each in consumers:
            message = each.poll(0.05)
            assert message is None or message.error() is None, message.error()
        if sorted(len(each.assignment()) for each in consumers) == sorted(counts):
            return
    raise AssertionError([len(each.assignment()) for each in consumers])


@pytest.mark.client("confluent-kafka", "groups of KIP-848: join, rebalance, commit, leave")
def test_librdkafka_shares_and_commits(bootstrap: str, topic: str) -> None:
    group = f"{topic}-lib"
    first, second = consumer(bootstrap, group), consumer(bootstrap, group)
    first.subscribe([topic])
    assert sorted(read(first, count=RECORDS), key=int) == [str(number) for number in range(RECORDS)]
    first.commit(asynchronous=False)
    second.subscribe([topic])
    wait_assigned([first, second], 2, 2)
    first.close()
    wait_assigned([second], 4)
    offsets = second.committed([TopicPartition(topic, number) for number in range(4)], DEADLINE_S)
    assert [each.offset for each in offsets] == [RECORDS // 4] * 4
    second.close()


@pytest.mark.client("confluent-kafka", "groups of KIP-848: a subscription by regular expression")
def test_librdkafka_subscribes_by_pattern(bootstrap: str, topic: str) -> None:
    one = consumer(bootstrap, f"{topic}-pattern")
    one.subscribe([f"^{topic}$"])
    assert len(read(one, count=RECORDS)) == RECORDS
    one.close()


@pytest.mark.client("confluent-kafka", "a classic group becomes one of KIP-848 in use, and a classic one again")
def test_a_group_changes_its_protocol_in_use_and_back(bootstrap: str, topic: str) -> None:
    group = f"{topic}-move"
    old = consumer(bootstrap, group, "classic", partition_assignment_strategy="cooperative-sticky")
    old.subscribe([topic])
    wait_assigned([old], 4)
    new = consumer(bootstrap, group)
    new.subscribe([topic])
    wait_assigned([old, new], 2, 2)
    new.close()
    wait_assigned([old], 4)
    old.close()


@pytest.mark.matrix
@pytest.mark.client("ConsoleConsumer", "reads as a member of a group of KIP-848")
@pytest.mark.client("ConsumerGroupCommand", "state and members of a group of KIP-848")
def test_java_reads_and_describes(bootstrap: str, topic: str) -> None:
    group = f"{topic}-java"
    ended = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--group",
        group,
        "--command-property",
        "group.protocol=consumer",
        "--from-beginning",
        "--max-messages",
        str(RECORDS),
        release=RELEASE,
    )
    assert sorted(ended.stdout.split(), key=int) == [str(number) for number in range(RECORDS)]
    live = consumer(bootstrap, group)
    live.subscribe([topic])
    wait_assigned([live], 4)
    command = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap)
    state = tool(*command, "--describe", "--group", group, "--state", "--verbose", release=RELEASE).stdout
    members = tool(*command, "--describe", "--group", group, "--members", "--verbose", release=RELEASE).stdout
    listed = tool(*command, "--list", "--type", "consumer", release=RELEASE).stdout
    live.close()
    assert "uniform" in state and "Stable" in state, state
    assert topic in members, members
    assert group in listed, listed
