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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from peers.kafka import install, java, start_fast
from tests.conformance.clients import build
from tests.conformance.pair import Wire
from tests.oracle import RELEASE

CLIENTS = Path(build.__file__).parent
PARTITIONS, RECORDS = 12, 3
LIMIT_S = 300
WRITE_AGAIN_S = 6
NEW = "consumer"
"""The strategy of a member that uses the protocol of KIP-848, in which the broker assigns."""
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
    """The command that starts a member. Skips if its language is not installed."""
    if client in PYTHON:
        return [sys.executable, str(CLIENTS / "python" / "member.py"), client, bootstrap, topic, group, strategy]
    if client == "VerifiableConsumer":
        install(RELEASE)
        settings = folder / "consumer.properties"
        if strategy == NEW:  # the broker says how often to ask
            settings.write_text("client.id=VerifiableConsumer\n")
            arguments = ["--group-protocol", "consumer"]
        else:
            settings.write_text("client.id=VerifiableConsumer\nheartbeat.interval.ms=500\n")
            name = f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[strategy]}"
            arguments = ["--session-timeout", "10000", "--assignment-strategy", name]
        return java(
            "org.apache.kafka.tools.VerifiableConsumer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--group-id",
            group,
            "--verbose",
            "--reset-policy",
            "earliest",
            "--command-config",
            str(settings),
            *arguments,
            flags=start_fast(RELEASE),
            release=RELEASE,
        )
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
            )
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
    """The members of one group, and what must hold of them. `strategies` are those of clients that have another."""

    def __init__(
        self, bootstrap: str, topic: str, strategy: str, folder: Path, strategies: Mapping[str, str] | None = None
    ) -> None:
        self.bootstrap, self.topic, self.strategy, self.folder = bootstrap, topic, strategy, folder
        self.strategies = dict(strategies or {})
        self.name = f"g-{topic}"
        self.live: list[Member] = []
        self.all: list[Member] = []
        self.written = 0
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.wire = Wire(bootstrap)
        self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(300)

    def write(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for n in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, str(self.written + n), partition=partition)
        assert producer.flush(300) == 0
        self.written += RECORDS

    def join(self, client: str) -> Member:
        strategy = self.strategies.get(client, self.strategy)
        arguments = command(client, self.bootstrap, self.topic, self.name, strategy, self.folder)
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
        state, said = self._said()
        names = {each.client.replace("@platformatic/kafka", "platformatic"): each.held for each in self.live}
        return state == "Stable" and said == names

    def _said(self) -> tuple[str, dict[str, set[int]]]:
        """The broker's state of the group, and the partitions of each client."""
        if self.type() == "Classic":
            described = self.admin.describe_consumer_groups([self.name])[self.name].result(300)
            held = {
                each.client_id: {p.partition for p in each.assignment.topic_partitions} for each in described.members
            }
            return ("Stable" if described.state == ConsumerGroupState.STABLE else ""), held
        asked = {"group_ids": [self.name], "include_authorized_operations": False}
        (group,) = self.wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked)["groups"]
        assert group["error_code"] in (ErrorCode.none, ErrorCode.group_id_not_found), group
        held = {
            each["client_id"]: {n for topic in each["assignment"]["topic_partitions"] for n in topic["partitions"]}
            for each in group["members"]
        }
        return group["group_state"], held

    def type(self) -> str:
        """Which protocol the group has, as ListGroups says."""
        listed = self.wire.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})["groups"]
        (found,) = [each["group_type"] for each in listed if each["group_id"] == self.name]
        return str(found).capitalize()

    def check_read_once(self) -> None:
        """All that was written, by somebody, and nothing twice. Raises AssertionError."""
        read = Counter(record for each in self.all for record in each.read)
        twice = {record: [m.client for m in self.all if record in m.read] for record, n in read.items() if n > 1}
        again = {record: readers for record, readers in twice.items() if not _was_set_back(record, twice)}
        assert again == {}, again
        assert read.keys() == {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.written)}

    def end(self) -> None:
        for each in self.live:
            each.process.kill()
            each.process.wait()


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
    group.check_read_once()


# Its stream goes on with what it has fetched while a rebalance gives the partition away, with Apache Kafka as well.
AT_LEAST_ONCE = {"@platformatic/kafka"}


def _was_set_back(record: tuple[int, int], twice: Mapping[tuple[int, int], list[str]]) -> bool:
    """Whether such a client read it, or read one written with it that another had read too.

    It commits that one for a partition that it has lost: the group goes back to the record behind it.
    """
    partition, offset = record
    together = range(offset - offset % RECORDS, offset + 1)
    return any(AT_LEAST_ONCE & set(twice.get((partition, each), ())) for each in together)
