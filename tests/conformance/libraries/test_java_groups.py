"""ConsumerGroupCommand and GroupsCommand: every way to look at, reset and delete groups, as with Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.testing import Broker
from peers.kafka import START_FAST, KafkaPeer
from tests.conformance.twins import Twins, comparable

GROUPS = "consumer.group.ConsumerGroupCommand"
PARTITIONS, RECORDS, COMMITTED = 2, 10, 5


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Also while a broker that just started makes its coordinator."""
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as error:
            if not error.args[0].name().endswith(("COORDINATOR", "IN_PROGRESS")) or time.monotonic() > deadline:
                raise


@pytest.fixture
def group(twins: Twins, topic: str) -> str:
    return made(twins, topic)


def made(twins: Twins, topic: str) -> str:
    """Both brokers have the topic, in each partition a record for each of the last ten hours, a group at offset 5."""
    twins.same("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    first_ms = int(time.time() * 1000) - RECORDS * 3_600_000 + 1_800_000
    for broker in (twins.ottla, twins.kafka):
        producer = Producer({"bootstrap.servers": broker})
        for n in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(topic, str(n), partition=partition, timestamp=first_ms + n * 3_600_000)
        assert producer.flush(300) == 0
        consumer = Consumer({"bootstrap.servers": broker, "group.id": f"g-{topic}"})
        commit(consumer, [TopicPartition(topic, p, COMMITTED) for p in range(PARTITIONS)])
        consumer.close()
    return f"g-{topic}"


def column(table: str, name: str, topic: str) -> list[str]:
    """The values of a column, by partition."""
    head, *rows = [line.split() for line in table.splitlines() if line.strip()]
    if name not in head:
        head = next(row for row in rows if name in row)
    rows = [row for row in rows if topic in row]
    rows.sort(key=lambda row: row[head.index("PARTITION")])
    return [row[head.index(name)] for row in rows]


@pytest.mark.client(
    "ConsumerGroupCommand",
    "--list, with --state and --type",
    "--describe with --offsets, --members, --state, --verbose, of groups without members",
)
@pytest.mark.client("GroupsCommand", "--list, with every filter")
def test_groups_without_members(twins: Twins, group: str, topic: str) -> None:
    def groups(*arguments: str, only: str = "") -> str:
        return twins.same(GROUPS, *arguments, only=only)

    assert group in groups("--list", only=group)
    for more in (("--state",), ("--state", "Empty"), ("--type",), ("--type", "classic"), ("--state", "--type")):
        assert group in groups("--list", *more, only=group)
    assert group not in groups("--list", "--state", "Stable", only=group)
    described = groups("--describe", "--group", group)
    assert column(described, "LAG", topic) == ["5", "5"]
    for more in (
        ("--verbose",),
        ("--offsets",),
        ("--offsets", "--verbose"),
        ("--members",),
        ("--members", "--verbose"),
        ("--state",),
        ("--state", "--verbose"),
        ("--all-topics",),
    ):
        if more != ("--all-topics",):
            groups("--describe", "--group", group, *more)
    twins.same(GROUPS, "--describe", "--group", f"{group}-none", only="Error")
    for more in ((), ("--group-type", "classic"), ("--consumer",), ("--protocol", "consumer")):
        twins.same("GroupsCommand", "--list", *more, only=group)


def test_all_groups(twins: Twins, topic: str, tmp_path: Path) -> None:
    """A cluster of its own: the tool gives up where a group of another test is deleted meanwhile."""
    with (
        Broker(group_initial_rebalance_delay_ms=0) as ottla,
        KafkaPeer(tmp_path / "kafka", heap="256m", flags=START_FAST) as kafka,
    ):
        alone = Twins(twins.shell, ottla.bootstrap, kafka.bootstrap)
        groups = {made(alone, f"{topic}-1"), made(alone, f"{topic}-2")}
        described = alone.same(GROUPS, "--describe", "--all-groups")
        assert {line.split()[0] for line in described.splitlines() if topic in line} == groups


@pytest.fixture
def members(twins: Twins, group: str, topic: str) -> Iterator[list[Consumer]]:
    """Two members in each broker's group, with one partition each."""
    started = [
        Consumer(
            {
                "bootstrap.servers": broker,
                "group.id": group,
                "client.id": "member",
                "group.instance.id": f"m{n}",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
            }
        )
        for broker in (twins.ottla, twins.kafka)
        for n in range(2)
    ]
    for each in started:
        each.subscribe([topic])
    deadline = time.monotonic() + 60
    while not all(len(each.assignment()) == 1 for each in started):
        assert time.monotonic() < deadline
        for each in started:
            each.poll(0.05)
    yield started
    for each in started:
        each.close()


@pytest.mark.client(
    "ConsumerGroupCommand",
    "--describe with --offsets, --members, --state, --verbose, of groups with members",
    "refusals: resets and deletes while there are members",
)
def test_groups_with_members(twins: Twins, group: str, topic: str, members: list[Consumer]) -> None:
    for more in (
        (),
        ("--verbose",),
        ("--members",),
        ("--members", "--verbose"),
        ("--state",),
        ("--offsets", "--verbose"),
    ):
        twins.same(GROUPS, "--describe", "--group", group, *more)
    twins.same(GROUPS, "--list", "--state", "Stable", only=group)
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
    mine, theirs = twins.both(GROUPS, *reset, "--execute")
    assert comparable(mine.out) == comparable(theirs.out)
    assert "inactive" in mine.out + mine.err
    mine, theirs = twins.both(GROUPS, "--delete", "--group", group)
    assert comparable(mine.out) == comparable(theirs.out)
    assert "GroupNotEmptyException" in mine.out + mine.err
    mine, theirs = twins.both(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert comparable(mine.out) == comparable(theirs.out)


@pytest.mark.client("ConsumerGroupCommand", "--delete-offsets", "--delete")
def test_deleting(twins: Twins, group: str, topic: str) -> None:
    out = twins.same(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "Successful" in out
    assert column(twins.same(GROUPS, "--describe", "--group", group), "PARTITION", topic) == ["1"]
    twins.same(GROUPS, "--delete-offsets", "--group", f"{group}-none", "--topic", topic)
    assert "successful" in twins.same(GROUPS, "--delete", "--group", group)
    mine, theirs = twins.both(GROUPS, "--delete", "--group", group)
    assert comparable(mine.out) == comparable(theirs.out)
    assert "GroupIdNotFoundException" in mine.out + mine.err
    assert group not in twins.same(GROUPS, "--list", only=group).split()


def at(hours_ago: float) -> str:
    return datetime.fromtimestamp(time.time() - hours_ago * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")


@pytest.mark.client(
    "ConsumerGroupCommand",
    "--reset-offsets, planned and executed: to earliest, latest, current, an offset, a time, by a duration, shifted",
    "--reset-offsets of all topics and of one partition",
    "--reset-offsets from a file, --export to one",
)
def test_resets(twins: Twins, group: str, topic: str, tmp_path: Path) -> None:
    reset = ("--reset-offsets", "--group", group)
    everywhere = (*reset, "--topic", topic)

    def planned_and_executed(*how: str, gives: list[int]) -> None:
        planned = twins.same(GROUPS, *everywhere, *how, "--dry-run")
        assert column(planned, "NEW-OFFSET", topic) == [str(each) for each in gives], how
        before = twins.same(GROUPS, "--describe", "--group", group)
        executed = twins.same(GROUPS, *everywhere, *how, "--execute")
        assert column(executed, "NEW-OFFSET", topic) == [str(each) for each in gives], how
        after = twins.same(GROUPS, "--describe", "--group", group)
        assert column(after, "CURRENT-OFFSET", topic) == [str(each) for each in gives], (how, before)

    planned_and_executed("--to-earliest", gives=[0, 0])
    planned_and_executed("--to-latest", gives=[10, 10])
    planned_and_executed("--to-offset", "3", gives=[3, 3])
    planned_and_executed("--shift-by", "2", gives=[5, 5])
    planned_and_executed("--to-current", gives=[5, 5])
    planned_and_executed("--shift-by", "-100", gives=[0, 0])
    planned_and_executed("--to-offset", "1000", gives=[10, 10])
    planned_and_executed("--to-datetime", at(4), gives=[6, 6])
    planned_and_executed("--by-duration", "PT2H", gives=[8, 8])
    planned_and_executed("--by-duration", "P1D", gives=[0, 0])
    assert column(twins.same(GROUPS, *reset, "--all-topics", "--to-offset", "7", "--execute"), "NEW-OFFSET", topic) == [
        "7",
        "7",
    ]
    twins.same(GROUPS, *reset, "--topic", f"{topic}:1", "--to-earliest", "--execute")
    exported = twins.same(GROUPS, *everywhere, "--to-current", "--export", "--dry-run")
    assert sorted(line for line in exported.splitlines() if topic in line) == [f"{topic},0,7", f"{topic},1,0"]
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,1\n{topic},1,9\n")
    twins.same(GROUPS, *reset, "--from-file", str(plan), "--dry-run")
    twins.same(GROUPS, *reset, "--from-file", str(plan), "--execute")
    assert column(twins.same(GROUPS, "--describe", "--group", group), "CURRENT-OFFSET", topic) == ["1", "9"]
    twins.same(GROUPS, "--reset-offsets", "--group", f"{group}-new", "--topic", topic, "--to-earliest", "--execute")


@pytest.mark.client("StreamsResetter", "resets the input topic of an application")
def test_streams_resetter(twins: Twins, group: str, topic: str) -> None:
    out = twins.same("StreamsResetter", "--application-id", group, "--input-topics", topic, "--to-earliest")
    assert topic in out
    described = twins.same(GROUPS, "--describe", "--group", group)
    assert column(described, "CURRENT-OFFSET", topic) == ["0", "0"]
