"""Groups that change between the classic and the consumer protocol in use, and classic members of consumer groups."""

from __future__ import annotations

import struct
from typing import Any

from ottla.coordinator.group.classic.group import ClassicGroup, State
from ottla.coordinator.group.consumer.consumer_protocol import decode_assignment
from ottla.coordinator.group.consumer.describe import describe as describe_consumer
from ottla.coordinator.group.requests import JoinGroup, LeaveGroup, Leaving, SyncGroup
from ottla.errors import ErrorCode, KafkaError
from tests.unit.coordinator.consumer_groups import Groups


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """A subscription in version 1."""
    out = struct.pack(">hi", 1, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">i", -1)
    out += struct.pack(">i", len(owned or {}))
    for topic, partitions in (owned or {}).items():
        out += _text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out


def assignment(**partitions: list[int]) -> bytes:
    out = struct.pack(">hi", 1, len(partitions))
    for topic, numbers in partitions.items():
        out += _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return out + struct.pack(">i", -1)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class Classic:
    """Classic members of the group `g` of `groups`."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups

    def join(self, member_id: str = "", *, instance_id: str | None = None, **named: Any) -> Any:
        metadata = subscription("t", owned=named.pop("owned", None))
        request = JoinGroup(
            group_id="g",
            member_id=member_id,
            instance_id=instance_id,
            client_id="k",
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols={"range": metadata},
            **named,
        )
        return self.answer(f"join {member_id}", self.groups.driver.shard.ask, request)

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> Any:
        request = SyncGroup(group_id="g", generation=generation, member_id=member_id, assignments=assignments or {})
        return self.answer(f"sync {member_id}", self.groups.driver.shard.ask, request)

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        driver = self.groups.driver
        try:
            driver.heartbeat("g", member_id, None, generation)
        except KafkaError as error:
            return error.code
        return ErrorCode.none

    def answer(self, token: str, call: Any, request: Any) -> Any:
        driver = self.groups.driver
        before = len(driver.replies)
        call(token, request, driver.now)
        driver.run()
        found = [answer for whose, answer in driver.replies[before:] if whose == token]
        return found[-1] if found else None


def classic_group(**settings: Any) -> tuple[Groups, Classic, str]:
    """A stable classic group with one member, which has all four partitions of t."""
    groups = Groups(**settings)
    groups.create(t=4)
    classic = Classic(groups)
    member_id = classic.join()["member_id"]
    classic.join(member_id)
    groups.driver.wait(1)
    answer = groups.driver.replies[-1][1]
    assert answer["generation_id"] == 1, answer
    assert classic.sync(member_id, 1, {member_id: assignment(t=[0, 1, 2, 3])})["assignment"]
    return groups, classic, member_id


def assigned(answer: Any) -> dict[str, list[int]]:
    rows = decode_assignment(answer["assignment"]).assigned_partitions
    return {row.topic: sorted(row.partitions) for row in rows}


def upgraded() -> tuple[Groups, Classic, str]:
    """The same group after a consumer of the new protocol, `n`, has joined and all have what they are to have."""
    groups, classic, member_id = classic_group()
    joined = groups.join("n", "t")
    assert (joined["member_epoch"], joined["assignment"]) == (2, {})
    assert classic.heartbeat(member_id, 1) is ErrorCode.rebalance_in_progress
    answer = classic.join(member_id, owned={"t": [0, 1, 2, 3]})
    assert (answer["error_code"], answer["generation_id"], answer["leader"]) == (ErrorCode.none, 1, "")
    kept = assigned(classic.sync(member_id, 1))
    assert len(kept["t"]) == 2
    assert classic.heartbeat(member_id, 1) is ErrorCode.rebalance_in_progress, "it has given partitions up"
    answer = classic.join(member_id, owned=kept)
    assert answer["generation_id"] == 2
    assert assigned(classic.sync(member_id, 2)) == kept
    assert classic.heartbeat(member_id, 2) is ErrorCode.none
    groups.poll("n")
    assert len(groups.assigned("n")["t"]) == 2 and groups.state() == "Stable"
    return groups, classic, member_id


def test_a_classic_group_becomes_a_consumer_group_in_use() -> None:
    groups, classic, member_id = upgraded()
    described = describe_consumer(groups.driver.shard.state, "g")
    assert {each["member_id"]: each["member_type"] for each in described["members"]} == {member_id: 0, "n": 1}
    before = groups.group().members
    groups.driver.restart()
    assert groups.group().members == before
    assert classic.heartbeat(member_id, 1) is ErrorCode.illegal_generation
    assert classic.heartbeat("n", 2) is ErrorCode.unknown_member_id
    assert classic.sync(member_id, 3)["error_code"] is ErrorCode.illegal_generation


def test_it_becomes_a_classic_group_again_when_only_classic_members_are_left() -> None:
    groups, classic, member_id = upgraded()
    assert groups.send("n", -1)["member_epoch"] == -1
    group = groups.driver.shard.state.groups["g"]
    assert isinstance(group, ClassicGroup) and group.state is State.PREPARING_REBALANCE
    assert group.generation == 2 and [*group.members] == [member_id]
    assert classic.heartbeat(member_id, 2) is ErrorCode.rebalance_in_progress
    assert classic.join(member_id)["generation_id"] == 3
    groups.driver.restart()
    found = groups.driver.shard.state.groups["g"]
    assert isinstance(found, ClassicGroup) and [*found.members] == [member_id]
    assert found.members[member_id].assignment


def test_a_downgrade_that_cannot_be_written_is_undone() -> None:
    groups, classic, member_id = upgraded()
    groups.driver.next_failure = ErrorCode.not_enough_replicas
    assert groups.send("n", -1) is ErrorCode.coordinator_not_available
    assert sorted(groups.group().members) == sorted([member_id, "n"])
    assert classic.heartbeat(member_id, 2) is ErrorCode.none
    groups.driver.wait(44_999)
    assert "n" in groups.group().members


def test_an_upgrade_that_cannot_be_written_is_undone() -> None:
    groups, classic, member_id = classic_group()
    groups.driver.next_failure = ErrorCode.not_enough_replicas
    assert groups.join("n", "t") is ErrorCode.coordinator_not_available
    assert classic.heartbeat(member_id, 1) is ErrorCode.none
    groups.driver.wait(10_000)
    group = groups.driver.shard.state.groups["g"]
    assert isinstance(group, ClassicGroup) and not group.members, "its session is watched again"


def test_the_policy_says_what_may_happen() -> None:
    groups, _, _ = classic_group(migration_policy="downgrade")
    assert groups.join("n", "t") is ErrorCode.group_id_not_found
    groups, _, member_id = classic_group(migration_policy="UPGRADE")
    groups.join("n", "t")
    groups.send("n", -1)
    assert [*groups.group().members] == [member_id]


def test_empty_groups_change_with_whoever_joins() -> None:
    groups = Groups(migration_policy="disabled")
    groups.create(t=2)
    classic = Classic(groups)
    assert classic.join()["error_code"] is ErrorCode.member_id_required
    assert groups.join("n", "t")["member_epoch"] == 2
    groups.send("n", -1)
    assert groups.state() == "Empty"
    groups.driver.next_failure = ErrorCode.not_enough_replicas
    classic.join()
    assert groups.state() == "Empty"
    assert classic.join()["error_code"] is ErrorCode.member_id_required
    assert isinstance(groups.driver.shard.state.groups["g"], ClassicGroup)
    groups.driver.restart()
    assert isinstance(groups.driver.shard.state.groups["g"], ClassicGroup)


def test_those_who_wait_in_a_rebalance_join_the_next_one() -> None:
    groups = Groups(initial_rebalance_delay_ms=5_000)
    groups.create(t=2)
    classic = Classic(groups)
    member_id = classic.join()["member_id"]
    assert classic.join(member_id) is None
    assert groups.join("n", "t")["error_code"] is ErrorCode.none
    _, answer = next(each for each in groups.driver.replies[1:] if each[0] == f"join {member_id}")
    assert answer["error_code"] is ErrorCode.rebalance_in_progress
    assert classic.join(member_id)["error_code"] is ErrorCode.none


def test_classic_members_join_late_or_leave() -> None:
    groups, classic, _ = upgraded()
    other = classic.join()
    assert other["error_code"] is ErrorCode.member_id_required
    assert classic.join(other["member_id"])["error_code"] is ErrorCode.none
    groups.driver.wait(9_999)
    assert len(groups.group().members) == 3
    groups.driver.wait(1)
    assert [*groups.group().members] == ["n"], "each has the session that it asked for"
    again = classic.join()["member_id"]
    classic.join(again)
    driver = groups.driver
    driver.shard.ask("leave", LeaveGroup("g", [Leaving("nobody"), Leaving(again)]), driver.now)
    driver.run()
    codes = [each["error_code"] for each in driver.replies[-1][1]["members"]]
    assert codes == [ErrorCode.unknown_member_id, ErrorCode.none]
    groups.settle()
    assert groups.assigned("n") == {"t": [0, 1, 2, 3]}


def test_metadata_that_cannot_be_read_are_refused() -> None:
    groups, classic, _ = upgraded()
    for metadata in (b"", b"\0", b"\0\1\0\0\0\1", b"\xff\xff\0\0\0\0"):
        request = JoinGroup(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols={"range": metadata},
            require_known_member_id=False,
        )
        answer = classic.answer("join", groups.driver.shard.ask, request)
        assert answer["error_code"] is ErrorCode.inconsistent_group_protocol
    assert len(groups.group().members) == 2


def test_a_static_member_changes_its_protocol() -> None:
    groups, classic, _ = classic_group()
    joined = groups.join("s", "t", instance_id="i")
    assert joined["error_code"] is ErrorCode.none
    back = classic.join(instance_id="i")
    assert back["error_code"] is ErrorCode.none
    group = groups.driver.shard.state.groups["g"]
    assert isinstance(group, ClassicGroup) and group.static_members == {"i": back["member_id"]}
    groups.driver.restart()
    found = groups.driver.shard.state.groups["g"]
    assert isinstance(found, ClassicGroup) and len(found.members) == 2
