"""One group whose members are of different make and language: they join, leave and die one after the other.

At each step the members hold all partitions, none of them twice, as the broker says too; and in the end each record was
read once, though each step found records to read: offsets were handed on.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from peers.kafka import START_FAST, install, java
from tests.conformance.clients import build
from tests.conformance.compatibility import Ran

CLIENTS = Path(build.__file__).parent
PARTITIONS, RECORDS = 12, 3
LIMIT_S = 300
WRITE_AGAIN_S = 15
JAVA_ASSIGNORS = {
    "range": "RangeAssignor", "roundrobin": "RoundRobinAssignor", "cooperative-sticky": "CooperativeStickyAssignor",
}  # fmt: skip
BINARIES = {
    "franz-go": ("go", "{built}/bin/franz-go", "member"),
    "sarama": ("go", "{built}/bin/sarama", "member"),
    "kafkajs": ("node", "node", "{built}/kafkajs-member.js"),
    "@platformatic/kafka": ("node", "node", "{built}/platformatic-member.js"),
}
PYTHON = ("confluent-kafka", "aiokafka", "kafka-python")


def command(client: str, bootstrap: str, topic: str, group: str, strategy: str, folder: Path) -> list[str]:
    """What starts a member. Skips where its language is not installed."""
    if client in PYTHON:
        return [sys.executable, str(CLIENTS / "python" / "member.py"), client, bootstrap, topic, group, strategy]
    if client == "VerifiableConsumer":
        install()
        settings = folder / "consumer.properties"
        settings.write_text("client.id=VerifiableConsumer\nheartbeat.interval.ms=500\n")
        return java(
            "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", bootstrap, "--topic", topic,
            "--group-id", group, "--verbose", "--session-timeout", "20000", "--reset-policy", "earliest",
            "--command-config", str(settings),
            "--assignment-strategy", f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[strategy]}",
            flags=START_FAST,
        )  # fmt: skip
    language, *words = BINARIES[client]
    if reason := build.missing(language):
        pytest.skip(reason)
    built = str(build.build(language))
    return [*(word.replace("{built}", built) for word in words), bootstrap, topic, group, strategy]


class Member:
    """A running member: what it holds and what it has read, by its own account."""

    def __init__(self, client: str, arguments: list[str], errors: Path) -> None:
        self.client = client
        self.held: set[int] = set()
        self.read: list[tuple[int, int]] = []
        self.errors = errors
        with open(errors, "ab") as log:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )  # fmt: skip
        self.reader = threading.Thread(target=self._follow, daemon=True)
        self.reader.start()

    def _follow(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        name = event.get("name")
        if "held" in event:
            self.held = set(event["held"])
        elif name == "partitions_assigned":
            self.held = self.held | {each["partition"] for each in event["partitions"]}
        elif name == "partitions_revoked":
            self.held = self.held - {each["partition"] for each in event["partitions"]}
        elif "offset" in event and name in (None, "record_data"):
            self.read.append((event["partition"], event["offset"]))

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)


class Group:
    """The members of one group, and what must hold of them."""

    def __init__(self, bootstrap: str, topic: str, strategy: str, folder: Path) -> None:
        self.bootstrap, self.topic, self.strategy, self.folder = bootstrap, topic, strategy, folder
        self.name = f"g-{topic}"
        self.live: list[Member] = []
        self.all: list[Member] = []
        self.written = 0
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(300)

    def write(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for n in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, str(self.written + n), partition=partition)
        assert producer.flush(300) == 0
        self.written += RECORDS

    def join(self, client: str) -> Member:
        arguments = command(client, self.bootstrap, self.topic, self.name, self.strategy, self.folder)
        member = Member(client, arguments, self.folder / f"{client.replace('/', '-')}.err")
        self.live.append(member)
        self.all.append(member)
        return member

    def leave(self, client: str, number: signal.Signals = signal.SIGTERM) -> None:
        (member,) = [each for each in self.live if each.client == client]
        self.live.remove(member)
        member.end(number)

    def until_settled(self, after: str) -> None:
        """Wait until the members share the partitions as the broker says, and all records are read and committed."""
        self._until(self._shared, f"{after}: not shared")
        self._until(self._read, f"{after}: not read")
        self._until_committed(f"{after}: not committed")
        self._until(self._as_the_broker_says, f"{after}: not as the broker says")

    def _until_committed(self, what: str) -> None:
        """A commit that a rebalance refused is not made again by every client: the next one makes it good."""
        for _ in range(LIMIT_S // WRITE_AGAIN_S):
            if self._wait(self._committed, WRITE_AGAIN_S):
                return
            self.write()
            self._until(self._read, what)
        self._until(self._committed, what)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        if not self._wait(holds, LIMIT_S):
            dead = self._dead()
            state = {each.client: sorted(each.held) for each in self.live}
            told = {each.client: each.errors.read_text()[-600:] for each in dead or self.live}
            raise AssertionError(f"{what}: {state}, ended: {[each.client for each in dead]}\n{told}")

    def _wait(self, holds: Callable[[], bool], limit_s: float) -> bool:
        """Whether it comes to hold before the time is over or a member ends."""
        deadline = time.monotonic() + limit_s
        while not holds():
            if self._dead() or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _dead(self) -> list[Member]:
        return [each for each in self.live if each.process.poll() is not None]

    def _shared(self) -> bool:
        held = [partition for each in self.live for partition in each.held]
        return sorted(held) == list(range(PARTITIONS)) and all(each.held for each in self.live)

    def _read(self) -> bool:
        return len({record for each in self.all for record in each.read}) == PARTITIONS * self.written

    def _committed(self) -> bool:
        asked = [ConsumerGroupTopicPartitions(self.name)]
        found = self.admin.list_consumer_group_offsets(asked)[self.name].result(300).topic_partitions
        return {each.partition: each.offset for each in found} == dict.fromkeys(range(PARTITIONS), self.written)

    def _as_the_broker_says(self) -> bool:
        described = self.admin.describe_consumer_groups([self.name])[self.name].result(300)
        said = {each.client_id: {p.partition for p in each.assignment.topic_partitions} for each in described.members}
        names = {each.client.replace("@platformatic/kafka", "platformatic"): each.held for each in self.live}
        return described.state == ConsumerGroupState.STABLE and said == names

    def end(self) -> None:
        for each in self.live:
            each.process.kill()
            each.process.wait()


@pytest.fixture
def group_of(bootstrap: str, topic: str, tmp_path: Path) -> Iterator[Callable[[str], Group]]:
    groups: list[Group] = []

    def start(strategy: str) -> Group:
        groups.append(Group(bootstrap, topic, strategy, tmp_path))
        return groups[-1]

    yield start
    for each in groups:
        each.end()


def play(group: Group, clients: list[str], dies: str) -> None:
    """Each joins; one is killed, comes back; then they leave in the order in which they came, but for the last."""
    for client in clients:
        group.write()
        group.join(client)
        group.until_settled(f"{client} joins")
    group.leave(dies, signal.SIGKILL)
    group.write()
    group.until_settled(f"{dies} is killed")
    group.write()
    group.join(dies)
    group.until_settled(f"{dies} comes back")
    *leaving, last = [each.client for each in group.live]
    for client in leaving:
        group.write()
        group.leave(client)
        group.until_settled(f"{client} leaves")
    group.leave(last)
    read = Counter(record for each in group.all for record in each.read)
    twice = {record: [m.client for m in group.all if record in m.read] for record, n in read.items() if n > 1}
    assert {record: readers for record, readers in twice.items() if not AT_LEAST_ONCE & set(readers)} == {}
    assert read.keys() == {(partition, offset) for partition in range(PARTITIONS) for offset in range(group.written)}


# Its stream goes on with what it has fetched while a rebalance gives the partition away, with Apache Kafka as well.
AT_LEAST_ONCE = {"@platformatic/kafka"}
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
            strategy, clients, dies, id=strategy,
            marks=[*marks, *(pytest.mark.client(each, STEP) for each in clients)],
        )
        for strategy, clients, dies, marks in CASES
    ],
)  # fmt: skip
def test_members_of_all_languages_share_a_group(
    group_of: Callable[[str], Group], strategy: str, clients: list[str], dies: str, ran: Ran
) -> None:
    for client in AT_LEAST_ONCE & set(clients):
        ran.lacks(client, "handing over exactly", "it may read a record again after a rebalance; with Apache Kafka too")
    play(group_of(strategy), clients, dies)
