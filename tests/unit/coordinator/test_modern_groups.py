"""Share groups, to requests of other protocols."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.admin import list_groups
from ottla.coordinator.group.requests import DeleteGroups, JoinGroup, OffsetCommit, OffsetDelete, OffsetToCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import SHARE, GroupRecord, ModernKey
from ottla.protocol.internal.group_values import encode_group_value
from ottla.protocol.schemas.records import (
    Record,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from tests.unit.coordinator.harness import SimulatedDriver


def group(*members: str, name: str = "g", at: int = 3) -> list[GroupRecord]:
    values: list[tuple[int, str | None, Record]] = [
        (SHARE.metadata, None, ShareGroupMetadataValue(at, 0)),
        (SHARE.target, None, ShareGroupTargetAssignmentMetadataValue(at)),
    ]
    for member in members:
        values += [
            (SHARE.member, member, ShareGroupMemberMetadataValue(None, "client", "/host", ("t",))),
            (SHARE.member_target, member, ShareGroupTargetAssignmentMemberValue(())),
            (SHARE.member_current, member, ShareGroupCurrentMemberAssignmentValue(at, at - 1, 0, ())),
        ]
    return [GroupRecord(ModernKey(number, name, member), encode_group_value(value)) for number, member, value in values]


def loaded(*records: GroupRecord, **settings: Any) -> SimulatedDriver:
    driver = SimulatedDriver(GroupConfig(initial_rebalance_delay_ms=0, **settings))
    driver.log = [[record] for record in records]
    driver.restart()
    return driver


def listed(driver: SimulatedDriver, *types: str) -> list[tuple[str, str, str]]:
    found = list_groups(driver.shard.state, (), types)
    return [(each["group_id"], each["group_state"], each["group_type"]) for each in found]


def join(driver: SimulatedDriver, name: str = "g", member_id: str = "") -> Any:
    request = JoinGroup(
        group_id=name,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols={"range": b""},
    )
    driver.shard.ask("join", request, driver.now)
    driver.run()
    return driver.replies[-1][1]


def delete(driver: SimulatedDriver, name: str = "g") -> ErrorCode:
    driver.shard.ask("delete", DeleteGroups([name]), driver.now)
    driver.run()
    answer = driver.replies[-1][1]
    return answer if isinstance(answer, ErrorCode) else answer["groups"][name]


def commit(driver: SimulatedDriver, member_id: str = "", at: int = -1, *, knows: bool = True) -> ErrorCode:
    request = OffsetCommit(
        group_id="g",
        member_id=member_id,
        generation=at,
        offsets=[OffsetToCommit("t", 0, 9, -1, "")],
        knows_unknown_group=knows,
    )
    try:
        driver.shard.ask("commit", request, driver.now)
    except KafkaError as error:
        return error.code
    driver.run()
    return ErrorCode.none


def test_a_classic_member_may_not_take_it_over() -> None:
    driver = loaded(*group(name="share"))
    assert join(driver, "share")["error_code"] is ErrorCode.inconsistent_group_protocol


def test_a_share_group_is_neither_deleted_nor_given_offsets() -> None:
    driver = loaded(*group())
    assert delete(driver) is ErrorCode.unsupported_version
    assert commit(driver) is ErrorCode.group_id_not_found
    with pytest.raises(KafkaError, match="not found"):
        driver.shard.ask("x", OffsetDelete("g", {"t": [0]}), driver.now)
    driver.wait(30 * 24 * 3_600_000)
    assert listed(driver) == [("g", "Empty", "share")]
