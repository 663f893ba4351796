"""Share groups with Kafka's own clients and tools, unchanged: the console consumer and ShareGroupCommand."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from tests.conformance.groups.share_consumers import JAVA, Consumer, configure, program, write
from tests.conformance.libraries.test_java_tools import console_produce
from tests.conformance.shell import Shell
from tests.conformance.twins import Twins, comparable

COMMAND = "consumer.group.ShareGroupCommand"
_ASSIGNMENT_EPOCH = re.compile(r"(\sEmpty\s+\d+\s+)\d+")
"""The assignment epoch of an empty group, behind its own epoch."""


def share_consume(shell: Shell, bootstrap: str, group: str, topic: str, count: int, *arguments: str) -> list[str]:
    return shell.run(
        "consumer.ConsoleShareConsumer",
        "--bootstrap-server",
        bootstrap,
        "--group",
        group,
        "--topic",
        topic,
        "--max-messages",
        str(count),
        "--timeout-ms",
        "30000",
        *arguments,
    ).lines()


def from_the_start(shell: Shell, bootstrap: str, group: str, **settings: str) -> None:
    settings = {"share.auto.offset.reset": "earliest", "share.heartbeat.interval.ms": "5000", **settings}
    changes = ",".join(f"{name}={value}" for name, value in settings.items())
    shell.run(
        "ConfigCommand",
        "--bootstrap-server",
        bootstrap,
        "--alter",
        "--group",
        group,
        "--add-config",
        changes,
    )


def command(shell: Shell, bootstrap: str, *arguments: str) -> list[list[str]]:
    lines = shell.run(COMMAND, "--bootstrap-server", bootstrap, *arguments).lines()
    return [line.split() for line in lines if line.strip()]


@pytest.mark.client("ConsoleShareConsumer", "reads what nobody else of its group has read")
@pytest.mark.client("ShareGroupCommand", "--list, --describe, --reset-offsets, --delete-offsets, --delete")
def test_a_group_reads_is_shown_reset_and_deleted(shell: Shell, bootstrap: str, topic: str) -> None:
    group = f"share-{topic}"
    console_produce(shell, bootstrap, topic, [f"line {number}" for number in range(20)])
    from_the_start(shell, bootstrap, group)
    assert share_consume(shell, bootstrap, group, topic, 20) == [f"line {number}" for number in range(20)]
    assert [group, "Empty"] in command(shell, bootstrap, "--list", "--state")
    assert lag(shell, bootstrap, group, topic) == "0"
    console_produce(shell, bootstrap, topic, ["one more"])
    assert lag(shell, bootstrap, group, topic) == "1"
    assert share_consume(shell, bootstrap, group, topic, 1) == ["one more"]
    where = ("--group", group, "--topic", topic)
    command(shell, bootstrap, "--reset-offsets", *where, "--to-earliest", "--execute")
    assert lag(shell, bootstrap, group, topic) == "21"
    assert share_consume(shell, bootstrap, group, topic, 2) == ["line 0", "line 1"]
    assert command(shell, bootstrap, "--delete-offsets", *where)[-1] == [topic, "Successful"]
    assert command(shell, bootstrap, "--delete", "--group", group) != []
    assert group not in [row[0] for row in command(shell, bootstrap, "--list")]


def lag(shell: Shell, bootstrap: str, group: str, topic: str) -> str:
    """Records still to be delivered of the topic's first partition."""
    rows = command(shell, bootstrap, "--describe", "--group", group)[1:]
    (row,) = [row for row in rows if row[:3] == [group, topic, "0"]]
    return row[4]


HOURS = 10
LATER = 5


@pytest.fixture
def twin_group(twins: Twins, topic: str) -> str:
    """Both brokers have a topic with a record for each of the last ten hours, all of which a share group has read, and
    some that it has not."""
    name = f"twin-{topic}"
    twins.same("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    first_ms = int(time.time() * 1000) - HOURS * 3_600_000 + 1_800_000
    for broker in (twins.ottla, twins.kafka):
        producer = Producer({"bootstrap.servers": broker})
        for hour in range(HOURS):
            for partition in range(2):
                producer.produce(topic, str(hour), partition=partition, timestamp=first_ms + hour * 3_600_000)
        assert producer.flush(300) == 0
        configure(broker, name, auto_offset_reset="earliest")
        assert len(share_consume(twins.shell, broker, name, topic, 2 * HOURS)) == 2 * HOURS
        write(broker, topic, (str(number) for number in range(LATER)), partition=1)
        settle(twins.shell, broker, name, topic)
    return name


def settle(shell: Shell, broker: str, group: str, topic: str) -> None:
    """Until what was acknowledged last is kept, and the member has left."""
    deadline = time.monotonic() + 60
    while not (
        [group, "Empty"] in command(shell, broker, "--list", "--state") and lag(shell, broker, group, topic) == "0"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.client(
    "ShareGroupCommand",
    "--describe with --offsets, --members, --state, --verbose, like Apache Kafka",
    "--reset-offsets to the earliest, to the latest and to a time, --dry-run too",
    "refuses what Kafka refuses: groups that are not there, groups with members",
)
def test_groups_without_members_like_kafka(twins: Twins, twin_group: str, topic: str) -> None:
    where = ("--group", twin_group)

    def same(*arguments: str, only: str = "") -> str:
        return twins.same(COMMAND, *arguments, only=only)

    assert twin_group in same("--list", only=twin_group)
    for more in (("--state",), ("--state", "Empty"), ("--state", "empty,stable")):
        assert twin_group in same("--list", *more, only=twin_group)
    assert twin_group not in same("--list", "--state", "Stable", only=twin_group)
    described = same("--describe", *where)
    assert str(LATER) in described.split()
    for more in (
        ("--verbose",),
        ("--offsets",),
        ("--offsets", "--verbose"),
        ("--members",),
        ("--members", "--verbose"),
        ("--state",),
    ):
        same("--describe", *where, *more)
    states = twins.both(COMMAND, "--describe", *where, "--state", "--verbose")
    ours, kafkas = ([_ASSIGNMENT_EPOCH.sub(r"\1", line) for line in comparable(each.out)] for each in states)
    assert ours == kafkas, "but for the epoch of an empty group's assignment (KAFKA-20442)"
    hour = datetime.fromtimestamp(time.time() - 3 * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    for to in (("--to-earliest",), ("--to-latest",), ("--to-datetime", hour)):
        for scope in (("--topic", topic), ("--topic", f"{topic}:1"), ("--all-topics",)):
            same("--reset-offsets", *where, *scope, *to, "--dry-run")
    same("--reset-offsets", *where, "--topic", topic, "--to-datetime", hour, "--execute")
    same("--describe", *where)
    same("--delete-offsets", *where, "--topic", topic)
    same("--delete-offsets", *where, "--topic", f"{topic}-nowhere")
    same("--describe", *where)
    same("--delete", *where)
    same("--delete", *where)
    same("--describe", *where)


MEMBER = re.compile(r"\b[\w-]{22}\b")


@pytest.fixture
def reading(twins: Twins, twin_group: str, topic: str) -> Iterator[str]:
    """The group has a member at both brokers, which has read all there is."""
    members = program(JAVA)
    joined = [Consumer(members, broker, twin_group, topic) for broker in (twins.ottla, twins.kafka)]
    for each in joined:
        each.take(LATER)
    yield twin_group
    for each in joined:
        each.close()
    members.close()


def test_a_group_with_a_member_like_kafka(twins: Twins, reading: str, topic: str) -> None:
    where = ("--group", reading)
    for more in (("--members",), ("--members", "--verbose"), ("--state",), ("--state", "--verbose"), ("--offsets",)):
        mine, theirs = twins.both(COMMAND, "--describe", *where, *more)
        shown = [
            [re.sub(r"member-\d+", "member", MEMBER.sub("ID", line)) for line in comparable(each.out)]
            for each in (mine, theirs)
        ]
        assert shown[0] == shown[1]
        assert any(reading in line for line in shown[0])
    twins.same(COMMAND, "--list", "--state", only=reading)
    for change in (
        ("--reset-offsets", "--topic", topic, "--to-earliest", "--execute"),
        ("--delete-offsets", "--topic", topic),
        ("--delete",),
    ):
        mine, theirs = twins.both(COMMAND, change[0], *where, *change[1:])
        assert (mine.status, comparable(mine.out), comparable(mine.err)) == (
            theirs.status,
            comparable(theirs.out),
            comparable(theirs.err),
        )
