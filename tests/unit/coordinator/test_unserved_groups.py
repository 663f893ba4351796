"""Groups of shares and streams that Kafka left: kept, emptied, taken over, deleted, expired."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.requests import JoinGroup, OffsetCommit, OffsetToCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import GroupMetadataKey, GroupRecord, OffsetCommitKey, OffsetCommitValue
from ottla.protocol.internal.group_values import GroupValue, encode_group_value
from ottla.protocol.internal.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.internal.unserved_group_records import (
    SHARE,
    STREAMS,
    UnservedKey,
    UnservedTypes,
)
from tests.unit.coordinator.harness import WALL_START_MS, SimulatedDriver

SESSION_MS = 45_000


def epoch(value: int) -> bytes:
    return struct.pack(">hi", 0, value) + b"\0"


def current(at: int, state: int = 0) -> bytes:
    return struct.pack(">hiib", 0, at, at - 1, state) + b"\1\1\0"


def offset(group: str, topic: str, ago_ms: int = 0) -> GroupRecord:
    value = OffsetCommitValue(5, 0, "m", WALL_START_MS - ago_ms, -1)
    return GroupRecord(OffsetCommitKey(group, topic, 0), value)


def group(types: UnservedTypes, *members: str, name: str = "g", at: int = 3) -> list[GroupRecord]:
    """As Kafka's log has it."""
    if types is SHARE:
        return share_group(*members, name=name, at=at)
    records = [
        GroupRecord(UnservedKey(types.metadata, name), epoch(at)),
        GroupRecord(UnservedKey(types.target, name), epoch(at)),
    ]
    for member in members:
        records += [
            GroupRecord(UnservedKey(types.member, name, member), b"\0\0any"),
            GroupRecord(UnservedKey(types.member_target, name, member), b"\0\0\1\0"),
            GroupRecord(UnservedKey(types.member_current, name, member), current(at)),
        ]
    return records


def share_group(*members: str, name: str, at: int) -> list[GroupRecord]:
    values: list[tuple[int, str | None, GroupValue]] = [
        (SHARE.metadata, None, ShareGroupMetadataValue(at, 0)),
        (SHARE.target, None, ShareGroupTargetAssignmentMetadataValue(at)),
    ]
    for member in members:
        values += [
            (SHARE.member, member, ShareGroupMemberMetadataValue(None, "client", "/host", ("t",))),
            (SHARE.member_target, member, ShareGroupTargetAssignmentMemberValue(())),
            (SHARE.member_current, member, ShareGroupCurrentMemberAssignmentValue(at, at - 1, 0, ())),
        ]
    return [
        GroupRecord(UnservedKey(number, name, member), encode_group_value(value)) for number, member, value in values
    ]


def loaded(*records: GroupRecord, **settings: Any) -> SimulatedDriver:
    driver = SimulatedDriver(GroupConfig(initial_rebalance_delay_ms=0, **settings))
    driver.log = [[record] for record in records]
    driver.restart()
    return driver


def listed(driver: SimulatedDriver, *types: str) -> list[tuple[str, str, str]]:
    found = driver.shard.list_groups((), types)
    return [(each["group_id"], each["group_state"], each["group_type"]) for each in found]


def join(driver: SimulatedDriver, name: str = "g", member_id: str = "") -> Any:
    request = JoinGroup(
        group_id=name, member_id=member_id, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        protocol_type="consumer", protocols={"range": b""},
    )  # fmt: skip
    driver.shard.join("join", request, driver.now)
    driver.run()
    return driver.replies[-1][1]


def delete(driver: SimulatedDriver, name: str = "g") -> ErrorCode:
    driver.shard.delete_groups("delete", [name], driver.now)
    driver.run()
    answer = driver.replies[-1][1]
    return answer if isinstance(answer, ErrorCode) else answer["groups"][name]


def commit(driver: SimulatedDriver, member_id: str = "", at: int = -1, *, knows: bool = True) -> ErrorCode:
    request = OffsetCommit(
        group_id="g", member_id=member_id, generation=at, offsets=[OffsetToCommit("t", 0, 9, -1, "")],
        knows_unknown_group=knows,
    )  # fmt: skip
    try:
        driver.shard.commit("commit", request, driver.now)
    except KafkaError as error:
        return error.code
    driver.run()
    return ErrorCode.none


def in_log(driver: SimulatedDriver) -> dict[Any, Any]:
    """What a compacted log would hold in the end."""
    latest = {record.key if isinstance(record.key, UnservedKey) else str(record.key): record
              for batch in driver.log for record in batch}  # fmt: skip
    return {key: record.value for key, record in latest.items() if record.value is not None}


@pytest.mark.parametrize("types", [STREAMS], ids=lambda types: types.group_type)
def test_members_are_given_a_session_and_removed(types: UnservedTypes) -> None:
    driver = loaded(*group(types, "m", "n"), offset("g", "t"))
    assert listed(driver) == [("g", "Stable", types.group_type)]
    before = len(driver.log)
    driver.wait(SESSION_MS - 1)
    assert len(driver.log) == before
    assert delete(driver) is ErrorCode.non_empty_group
    driver.wait(1)
    assert listed(driver) == [("g", "Empty", types.group_type)]
    left = {key: value for key, value in in_log(driver).items() if isinstance(key, UnservedKey)}
    assert left == {UnservedKey(types.metadata, "g"): epoch(4), UnservedKey(types.target, "g"): epoch(3)}
    order = [record.key.type for record in driver.log[-1] if isinstance(record.key, UnservedKey)]
    assert order == [kind for kind in (types.member_current, types.member_target, types.member) for _ in "mn"] + [
        types.metadata
    ]
    driver.restart()
    assert listed(driver) == [("g", "Empty", types.group_type)]


def test_a_removal_that_fails_is_tried_again() -> None:
    driver = loaded(*group(STREAMS, "m"))
    driver.next_failure = ErrorCode.kafka_storage_error
    driver.wait(SESSION_MS)
    assert listed(driver) == [("g", "Stable", "streams")]
    driver.wait(SESSION_MS)
    assert listed(driver) == [("g", "Empty", "streams")]


def test_which_other_groups_a_classic_member_may_take_over() -> None:
    driver = loaded(
        *group(STREAMS, name="empty"), *group(STREAMS, "m", name="streams"), *group(SHARE, name="share"),
    )  # fmt: skip
    assert join(driver, "empty")["error_code"] is ErrorCode.member_id_required
    assert join(driver, "streams")["error_code"] is ErrorCode.inconsistent_group_protocol
    assert join(driver, "share")["error_code"] is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize("types", [STREAMS], ids=lambda types: types.group_type)
def test_an_empty_group_is_deleted_with_all_its_records(types: UnservedTypes) -> None:
    others = [GroupRecord(UnservedKey(kind, "g"), b"\0\0any") for kind in types.others]
    driver = loaded(*group(types), *others, offset("g", "t"))
    driver.next_failure = ErrorCode.kafka_storage_error
    assert delete(driver) is ErrorCode.not_coordinator
    assert listed(driver) == [("g", "Empty", types.group_type)]
    assert delete(driver) is ErrorCode.none
    assert in_log(driver) == {}
    last = driver.log[-1][-1].key
    assert isinstance(last, UnservedKey) and last.type == types.metadata
    assert delete(driver) is ErrorCode.group_id_not_found


def test_a_share_group_is_neither_deleted_nor_given_offsets() -> None:
    driver = loaded(*group(SHARE))
    assert delete(driver) is ErrorCode.unsupported_version
    assert commit(driver) is ErrorCode.group_id_not_found
    with pytest.raises(KafkaError, match="not found"):
        driver.shard.delete_offsets("x", "g", {"t": [0]}, driver.now)
    driver.wait(30 * 24 * 3_600_000)
    assert listed(driver) == [("g", "Empty", "share")]


def test_offsets_expire_by_their_commits_and_the_group_with_the_last() -> None:
    retention, interval = 10_000_000, 1_000
    driver = loaded(
        *group(STREAMS), offset("g", "t", ago_ms=retention - 1500), offset("g", "u", ago_ms=retention - 2500),
        offsets_retention_ms=retention, offsets_retention_check_interval_ms=interval,
    )  # fmt: skip
    driver.wait(2 * interval)
    [topic] = driver.shard.fetch_offsets("g", None)
    assert topic.name == "u"
    driver.wait(interval)
    assert listed(driver) == []
    assert in_log(driver) == {}


def test_states_are_those_of_kafka() -> None:
    target, member = UnservedKey(STREAMS.target, "g"), UnservedKey(STREAMS.member_current, "g", "m")
    records = group(STREAMS, "m", at=3)
    assert listed(loaded(*records, GroupRecord(target, epoch(2)))) == [("g", "Assigning", "streams")]
    for value in (current(2), current(3, 1)):
        assert listed(loaded(*records, GroupRecord(member, value))) == [("g", "Reconciling", "streams")]
    driver = loaded(*records)
    assert listed(driver, "share", "classic") == []
    assert listed(driver, "streams") == [("g", "Stable", "streams")]
    assert driver.shard.describe("g")["error_code"] is ErrorCode.group_id_not_found


def test_a_group_that_changed_its_protocol_is_what_it_was_last() -> None:
    upgraded = [GroupRecord(GroupMetadataKey("g"), None), *group(STREAMS)]
    assert listed(loaded(offset("g", "t"), *upgraded)) == [("g", "Empty", "streams")]
    driver = loaded(offset("g", "t"), *upgraded)
    join(driver)
    driver.log += [[record] for record in group(STREAMS)]
    driver.restart()
    assert listed(driver) == [("g", "Empty", "streams")]
