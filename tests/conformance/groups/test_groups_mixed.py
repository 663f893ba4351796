"""Groups whose members are of different make, language and, at last, protocol: they join, leave and die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.compatibility import Ran
from tests.conformance.groups.mixed_group import AT_LEAST_ONCE, NEW, Group, play
from tests.node import NodeProcess


@pytest.fixture
def group_of(bootstrap: str, topic: str, tmp_path: Path) -> Iterator[Callable[[str], Group]]:
    groups: list[Group] = []

    def start(strategy: str) -> Group:
        groups.append(Group(bootstrap, topic, strategy, tmp_path))
        return groups[-1]

    yield start
    for each in groups:
        each.end()


STEP = "joins, leaves and dies in groups of mixed languages ({strategy})"
EAGER = ["confluent-kafka", "VerifiableConsumer", "aiokafka", "franz-go", "kafka-python", "sarama"]
NODE = ["kafkajs", "@platformatic/kafka"]
COOPERATIVE = ["VerifiableConsumer", "confluent-kafka", "franz-go", "kafka-python"]
CASES = [
    ("range", EAGER, "aiokafka", []),
    ("roundrobin", ["sarama", *NODE, "kafka-python", "VerifiableConsumer", "confluent-kafka", "aiokafka", "franz-go"],
     "kafkajs", [pytest.mark.matrix]),
    ("cooperative-sticky", COOPERATIVE, "VerifiableConsumer", []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "clients", "dies"),
    [
        pytest.param(
            strategy,
            clients,
            dies,
            id=strategy,
            marks=[*marks, *(pytest.mark.client(each, STEP) for each in clients)],
        )
        for strategy, clients, dies, marks in CASES
    ],
)
def test_members_of_all_languages_share_a_group(
    group_of: Callable[[str], Group], strategy: str, clients: list[str], dies: str, ran: Ran
) -> None:
    for client in AT_LEAST_ONCE & set(clients):
        ran.lacks(client, "handing over exactly", "it may read a record again after a rebalance; with Apache Kafka too")
    play(group_of(strategy), clients, dies)


STEP_NEW = "joins, leaves and dies in a group of KIP-848"
STEP_MOVES = "a member in groups that change their protocol, in use, both ways"


@pytest.fixture
def quick_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node with short heartbeat and session times for KIP-848's protocol."""
    settings = {
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.assignment.interval.ms": "100",
    }
    with NodeProcess(tmp_path / "data", settings) as started:
        yield started


@pytest.mark.client("franz-go", STEP_NEW)
@pytest.mark.client("confluent-kafka", STEP_NEW)
@pytest.mark.client("VerifiableConsumer", STEP_NEW)
def test_members_of_all_languages_share_a_group_of_kip_848(quick_node: NodeProcess, topic: str, tmp_path: Path) -> None:
    group = Group(quick_node.bootstrap, topic, NEW, tmp_path)
    try:
        play(group, ["VerifiableConsumer", "confluent-kafka", "franz-go"], "franz-go")
    finally:
        group.end()


@pytest.mark.client("franz-go", STEP_MOVES)
@pytest.mark.client("confluent-kafka", STEP_MOVES)
@pytest.mark.client("kafka-python", STEP_MOVES)
def test_a_group_has_the_newest_protocol_of_its_members(quick_node: NodeProcess, topic: str, tmp_path: Path) -> None:
    group = Group(quick_node.bootstrap, topic, NEW, tmp_path, {"kafka-python": "cooperative-sticky"})
    types = []
    try:
        for client in ("kafka-python", "franz-go", "confluent-kafka"):
            group.write()
            group.join(client)
            group.until_settled(f"{client} joins")
            types.append(group.type())
        for client in ("franz-go", "confluent-kafka"):
            group.write()
            group.leave(client)
            group.until_settled(f"{client} leaves")
            types.append(group.type())
    finally:
        group.end()
    assert types == ["Classic", "Consumer", "Consumer", "Consumer", "Classic"]
    group.check_read_once()
