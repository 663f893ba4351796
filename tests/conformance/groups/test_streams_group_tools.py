"""StreamsGroupCommand, unchanged, about groups of KIP-1071: as with Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential_streams import GROUP, asked, subtopology, topology
from tests.conformance.operations.operations import eventually
from tests.conformance.pair import Wire, settle
from tests.conformance.twins import Twins

COMMAND = "streams.StreamsGroupCommand"
RECORDS, COMMITTED = 10, 4
SETTINGS = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


class Member:
    """The one member of a group on one broker, without an application behind it."""

    def __init__(self, bootstrap: str, group: str, source: str) -> None:
        self.wire, self.group, self.source = Wire(bootstrap), group, source
        self.epoch = 0

    def join(self) -> None:
        """It has the task of the topic's partition, and has committed an offset."""
        found = {"key": self.group, "key_type": 0}
        eventually(lambda: self.wire.ask(ApiKey.FIND_COORDINATOR, 1, found)["error_code"] == 0)
        runs = topology(subtopology("0", self.source))
        joined = eventually(lambda: self._ok(asked(self.group, topology=runs)))
        self.epoch = joined["member_epoch"]
        assert [each["partitions"] for each in joined["active_tasks"]] == [[0]], joined
        part = {
            "partition_index": 0,
            "committed_offset": COMMITTED,
            "committed_leader_epoch": 0,
            "committed_metadata": "",
        }
        commit = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": "m",
            "group_instance_id": None,
            "topics": [{"name": self.source, "partitions": [part]}],
        }
        (row,) = self.wire.ask(ApiKey.OFFSET_COMMIT, 9, commit)["topics"]
        assert row["partitions"][0]["error_code"] == 0, row

    def committed(self) -> int:
        topics = [{"name": self.source, "partition_indexes": [0]}]
        values = {"group_id": self.group, "topics": topics, "require_stable": False}
        (row,) = self.wire.ask(ApiKey.OFFSET_FETCH, 7, values)["topics"]
        return int(row["partitions"][0]["committed_offset"])

    def leave(self) -> None:
        assert self._ok(asked(self.group, member_epoch=-1))

    def _ok(self, values: dict[str, Any]) -> Any:
        answer = self.wire.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, values)
        return answer if answer["error_code"] == 0 else None

    def close(self) -> None:
        self.wire.socket.close()


@pytest.fixture
def members(twins: Twins, topic: str) -> Iterator[list[Member]]:
    """One on each broker, in the group `streams-TOPIC`, which reads the topic."""
    group = f"streams-{topic}"
    twins.same("TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    made = []
    for broker in (twins.ottla, twins.kafka):
        producer = Producer({"bootstrap.servers": broker})
        for number in range(RECORDS):
            producer.produce(topic, str(number), partition=0)
        assert producer.flush(300) == 0
        member = Member(broker, group, topic)
        configs = [{"name": name, "config_operation": 0, "value": value} for name, value in SETTINGS.items()]
        row = {"resource_type": GROUP, "resource_name": group, "configs": configs}
        answer = member.wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [row], "validate_only": False})
        assert answer["responses"][0]["error_code"] == 0, answer
        settle(member.wire)
        member.join()
        made.append(member)
    yield made
    for member in made:
        member.close()


@pytest.mark.client(
    "StreamsGroupCommand",
    "--list, with --state",
    "--describe with --offsets, --members, --state, --verbose",
    "--reset-offsets, --delete-offsets, --delete",
)
def test_groups_are_shown_reset_and_deleted(twins: Twins, members: list[Member], topic: str) -> None:
    group = members[0].group

    def command(*arguments: str, only: str = "", fails: bool = False) -> str:
        return twins.same(COMMAND, *arguments, only=only, fails=fails)

    def offsets() -> set[int]:
        return {member.committed() for member in members}

    assert group in command("--list", only=group)
    assert "Stable" in command("--list", "--state", only=group)
    assert group not in command("--list", "--state", "Empty", only=group)
    for more in (
        (),
        ("--verbose",),
        ("--members",),
        ("--members", "--verbose"),
        ("--state",),
        ("--state", "--verbose"),
        ("--offsets", "--verbose"),
    ):
        assert group in command("--describe", "--group", group, *more)
    assert offsets() == {COMMITTED}
    twins.same("GroupsCommand", "--list", "--group-type", "streams", only=group)
    twins.both(COMMAND, "--delete", "--group", group)
    assert group in command("--list", only=group), "it has a member"
    for member in members:
        member.leave()
    assert "Empty" in command("--list", "--state", only=group)
    where = ("--group", group, "--input-topic", topic)
    command("--reset-offsets", *where, "--to-earliest", "--execute")
    assert offsets() == {0}
    command("--reset-offsets", *where, "--to-offset", "7", "--execute")
    assert offsets() == {7}
    command("--delete-offsets", *where)
    assert offsets() == {-1}
    command("--delete", "--group", group)
    assert group not in command("--list", only=group)
