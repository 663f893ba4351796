"""Requests about share groups, as the group coordinator decides on them: replies wait for the commit, the share
coordinator is asked after it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.effects import Effect, InitializeShares
from ottla.coordinator.group.requests import (
    DeleteShareGroup,
    DeleteShareOffsets,
    DeleteShareStates,
    MoveShareOffsets,
    ShareHeartbeat,
    SharesDeleted,
    SharesInitialized,
)
from ottla.errors import ErrorCode, KafkaError
from tests.unit.coordinator.consumer_groups import Groups


class Share:
    def __init__(self) -> None:
        self.groups = Groups()
        self.driver = self.groups.driver
        self.groups.create(t=2)
        self.topic_id = self.groups.topics["t"]

    def ask(self, request: Any) -> Any:
        """The reply, None while there is none; raises KafkaError."""
        before = len(self.driver.replies)
        self.driver.shard.ask("asked", request, self.driver.now)
        self.driver.run()
        return dict(self.driver.replies[before:]).get("asked")

    def released(self) -> Any:
        before = len(self.driver.replies)
        self.driver.release()
        return dict(self.driver.replies[before:]).get("asked")


def test_a_heartbeat_has_new_partitions_initialized_once_that_is_written() -> None:
    share = Share()
    wanted: list[Effect] = []
    share.driver.initialize_shares = wanted.append
    share.driver.holding = True
    assert share.ask(ShareHeartbeat("g", "a", 0, None, "c", "/h", ["t"])) is None
    assert wanted == []
    assert share.released()["member_epoch"] == 2
    assert wanted == [InitializeShares("g", 2, {share.topic_id: frozenset({0, 1})})]


def test_replies_to_an_operator_wait_for_the_commit() -> None:
    share = Share()
    topic_id = share.topic_id
    share.driver.holding = True
    assert share.ask(MoveShareOffsets("g", {topic_id: {0: 5, 1: 7}})) is None
    assert share.released() == {"epoch": 1}
    assert share.ask(SharesInitialized("g", {topic_id: [0, 1]}, True)) == {}
    assert share.ask(DeleteShareOffsets("g", ["t"])) == {"found": {topic_id: [0, 1]}, "failed": {}}
    assert share.ask(SharesDeleted("g", [topic_id])) == {}
    failed = share.ask(DeleteShareOffsets("g", ["t", "u"]))["failed"]
    assert {name: error.code for name, error in failed.items()} == dict.fromkeys(
        "tu", ErrorCode.unknown_topic_or_partition
    )
    assert share.ask(DeleteShareStates("g")) == {"found": {}}
    assert share.ask(DeleteShareGroup("g")) == {"groups": {"g": ErrorCode.none}}
    assert share.ask(DeleteShareStates("g")) == {"found": None}


def test_steps_that_cannot_be_written_are_errors_and_change_nothing() -> None:
    share = Share()
    share.driver.next_failure = ErrorCode.not_enough_replicas
    found = share.ask(MoveShareOffsets("g", {share.topic_id: {0: 5}}))
    assert found is ErrorCode.coordinator_not_available
    with pytest.raises(KafkaError) as raised:
        share.ask(DeleteShareOffsets("g", ["t"]))
    assert raised.value.code is ErrorCode.group_id_not_found
