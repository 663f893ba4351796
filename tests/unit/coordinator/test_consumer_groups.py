"""Consumer groups (KIP-848): members join, change, leave; assignments; failures; what a restart finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.effects import InTransaction
from ottla.coordinator.group.admin import list_groups
from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.consumer.describe import describe as describe_consumer
from ottla.coordinator.group.consumer.member import MemberState
from ottla.coordinator.group.offsets import check_fetch, fetch
from ottla.coordinator.group.requests import DeleteGroups, OffsetCommit, OffsetToCommit, TxnOffsetCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import ConfigResource, ConfigResourceType
from ottla.model import NO_GUARD
from ottla.protocol.internal.group_records import GroupRecord, ModernKey
from ottla.protocol.schemas.records import ConsumerGroupPartitionMetadataValue, OffsetCommitKey, OffsetCommitValue
from tests.unit.coordinator.consumer_groups import Groups
from tests.unit.coordinator.harness import WALL_START_MS

SESSION_MS = 45_000


def shared() -> Groups:
    """Members a and b, each with two of the four partitions of t."""
    groups = Groups()
    groups.create(t=4, u=2)
    groups.join("a", "t")
    groups.join("b", "t")
    groups.settle()
    assert groups.state() == "Stable"
    assert sorted(map(len, (groups.assigned("a")["t"], groups.assigned("b")["t"]))) == [2, 2]
    return groups


def assert_reloads(groups: Groups) -> None:
    """A coordinator that loads the log finds the group that is here."""
    before = groups.group()
    groups.driver.restart()
    after = groups.group()
    assert after is not before
    for name in (
        "members",
        "targets",
        "static_members",
        "resolved",
        "subscriptions",
        "patterns",
        "partition_epochs",
        "epoch",
        "assignment_epoch",
        "metadata_hash",
        "classic_count",
        "shown_state",
    ):
        assert getattr(after, name) == getattr(before, name), name


def test_partitions_are_given_up_before_others_get_them() -> None:
    groups = Groups()
    groups.create(t=4)
    first = groups.join("a", "t")
    assert first["member_epoch"] == 2 and len(first["assignment"][groups.topics["t"]]) == 4
    second = groups.join("b", "t")
    assert (second["member_epoch"], second["assignment"]) == (3, {})
    assert groups.state() == "Reconciling"
    b = groups.group().members["b"]
    assert b.state is MemberState.UNRELEASED_PARTITIONS
    told = groups.send("a", 2)
    assert told["member_epoch"] == 2 and len(told["assignment"][groups.topics["t"]]) == 2
    assert groups.send("a", 2)["assignment"] is None, "it has still to give up, and was told"
    assert groups.poll("b")["member_epoch"] == 3
    assert groups.assigned("b") == {}
    assert groups.poll("a")["member_epoch"] == 3
    assert len(groups.poll("b")["assignment"][groups.topics["t"]]) == 2
    assert groups.state() == "Stable"
    assert_reloads(groups)


def test_an_answer_that_was_lost_is_given_again() -> None:
    groups = shared()
    a = groups.group().members["a"]
    assert a.epoch == 3 and a.previous_epoch == 2
    assert groups.send("a", 2, owned=groups.owned(t=groups.assigned("a")["t"][:1]))["member_epoch"] == 3
    for epoch, owned in ((2, None), (2, groups.owned(t=range(4))), (1, {}), (4, {})):
        assert groups.send("a", epoch, owned=owned) is ErrorCode.fenced_member_epoch, epoch
    assert groups.send("c", 3) is ErrorCode.unknown_member_id
    assert groups.send("a", 3, group="other") is ErrorCode.group_id_not_found


def test_a_member_joins_again_with_epoch_zero() -> None:
    groups = shared()
    again = groups.join("a", "t")
    assert again["member_epoch"] == 3 and len(again["assignment"][groups.topics["t"]]) == 2


def test_members_that_leave_or_fall_silent_give_their_partitions_back() -> None:
    groups = shared()
    left = groups.send("b", -1)
    assert (left["member_epoch"], left["assignment"]) == (-1, None)
    groups.settle()
    assert groups.assigned("a") == {"t": [0, 1, 2, 3]} and groups.group().epoch == 4
    groups.join("b", "t")
    groups.settle()
    groups.driver.wait(SESSION_MS - 1)
    groups.poll("a")
    groups.driver.wait(1)
    assert [*groups.group().members] == ["a"]
    groups.driver.wait(SESSION_MS)
    assert groups.state() == "Empty"
    assert_reloads(groups)


def test_a_member_that_keeps_partitions_for_too_long_is_fenced() -> None:
    groups = Groups(consumer_session_timeout_ms=1_000_000)
    groups.create(t=2)
    groups.join("a", "t", rebalance_timeout_ms=5_000)
    groups.join("b", "t")
    groups.send("a", 2)
    groups.driver.wait(4_999)
    assert "a" in groups.group().members
    groups.driver.wait(1)
    assert "a" not in groups.group().members
    groups.settle()
    assert groups.assigned("b") == {"t": [0, 1]}


def test_static_members_keep_their_partitions_while_away() -> None:
    groups = Groups()
    groups.create(t=4)
    groups.join("a", "t", instance_id="i")
    groups.join("b", "t")
    groups.settle()
    mine = groups.assigned("a")
    assert groups.join("a2", "t", instance_id="i") is ErrorCode.unreleased_instance_id
    away = groups.send("a", -2, instance_id="i")
    assert away["member_epoch"] == -2
    assert_reloads(groups)
    back = groups.join("a2", "t", instance_id="i")
    assert {groups_topic: sorted(found) for groups_topic, found in back["assignment"].items()} == {
        groups.topics["t"]: mine["t"]
    }
    assert groups.group().static_members == {"i": "a2"}
    assert sorted(groups.group().members) == ["a2", "b"]
    for member_id, instance_id, code in (
        ("a", "i", ErrorCode.fenced_instance_id),
        ("a", "j", ErrorCode.unknown_member_id),
    ):
        assert groups.send(member_id, 3, instance_id=instance_id) is code
        assert groups.send(member_id, -1, instance_id=instance_id) is code
    groups.settle()
    assert groups.state() == "Stable"
    assert_reloads(groups)
    groups.send("a2", -2, instance_id="i")
    groups.driver.wait(SESSION_MS)
    assert "a2" not in groups.group().members


def test_another_subscription_is_another_group_epoch() -> None:
    groups = shared()
    groups.poll("a", topics=["t", "u"])
    assert groups.group().epoch == 4
    groups.settle()
    assert sum(map(len, groups.assigned("a").values())) + len(groups.assigned("b")["t"]) == 6
    groups.poll("a", topics=[])
    groups.settle()
    assert groups.assigned("a") == {} and groups.assigned("b") == {"t": [0, 1, 2, 3]}
    assert groups.driver.shard.state.groups["g"].is_subscribed_to("t")
    assert not groups.driver.shard.state.groups["g"].is_subscribed_to("u")


def test_topics_that_change_begin_a_rebalance() -> None:
    groups = shared()
    epoch = groups.group().epoch
    groups.create(other=1)
    groups.settle()
    assert groups.group().epoch == epoch
    groups.create(t=6)
    groups.settle()
    assert groups.group().epoch == epoch + 1
    assert len(groups.assigned("a")["t"]) + len(groups.assigned("b")["t"]) == 6
    groups.delete("t")
    groups.settle()
    assert groups.group().epoch == epoch + 2
    assert not groups.group().members["a"].assigned
    groups.create(t=2)
    groups.settle()
    assert len(groups.assigned("a")["t"]) + len(groups.assigned("b")["t"]) == 2
    assert_reloads(groups)


def test_patterns_are_resolved_and_followed() -> None:
    groups = Groups()
    groups.create(ta=2, tb=1, u=1)
    assert groups.join("a", pattern="t(") is ErrorCode.invalid_regular_expression
    assert groups.join("a", pattern="t.*")["assignment"] == {}
    groups.settle()
    assert groups.assigned("a") == {"ta": [0, 1], "tb": [0]}
    groups.create(tc=3)
    groups.settle()
    assert "tc" not in groups.assigned("a"), "it was resolved less than ten seconds ago"
    groups.driver.wait(10_001)
    groups.settle()
    assert groups.assigned("a")["tc"] == [0, 1, 2]
    groups.join("b", pattern="t.*")
    groups.settle()
    assert groups.group().patterns == {"t.*": 2} and len(groups.group().resolved) == 1
    assert_reloads(groups)
    groups.send("a", -1)
    groups.poll("b", pattern="", topics=["u"])
    groups.settle()
    assert groups.group().resolved == {} and groups.assigned("b") == {"u": [0]}
    assert groups.group().subscriptions.by_pattern == {}
    assert_reloads(groups)


def test_assignments_have_an_interval() -> None:
    groups = Groups(consumer_assignment_interval_ms=1_000)
    groups.create(t=2)
    groups.join("a", "t")
    assert groups.join("b", "t")["member_epoch"] == 2
    assert groups.state() == "Assigning"
    groups.settle()
    assert groups.state() == "Assigning"
    groups.driver.wait(1_000)
    groups.settle()
    assert groups.state() == "Stable" and groups.group().assignment_epoch == 3


def test_groups_have_settings_of_their_own() -> None:
    groups = shared()
    delta = MetadataDelta(groups.driver.image)
    delta.configs[ConfigResource(ConfigResourceType.GROUP, "g")] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    groups.driver.change_topics(delta)
    assert groups.poll("a")["heartbeat_interval"] == 7_000
    groups.driver.wait(49_999)
    assert [*groups.group().members] == ["a"]
    groups.driver.wait(1)
    assert groups.state() == "Empty"


def test_a_decision_that_cannot_be_written_is_undone() -> None:
    groups = Groups()
    groups.create(t=4)
    driver = groups.driver
    driver.next_failure = ErrorCode.not_enough_replicas
    assert groups.join("a", "t") is ErrorCode.coordinator_not_available
    assert driver.shard.state.groups == {}
    groups.join("a", "t")
    groups.settle()
    driver.next_failure = ErrorCode.not_enough_replicas
    assert groups.join("b", "t") is ErrorCode.coordinator_not_available
    driver.next_failure = ErrorCode.not_enough_replicas
    assert groups.send("a", -1) is ErrorCode.coordinator_not_available
    driver.next_failure = ErrorCode.not_enough_replicas
    assert groups.join("p", pattern="t") is ErrorCode.coordinator_not_available
    assert_reloads(groups)
    assert [*groups.group().members] == ["a"] and groups.state() == "Stable"


def test_later_requests_see_what_is_not_committed_yet() -> None:
    groups = Groups()
    groups.create(t=4)
    driver = groups.driver
    driver.holding = True
    assert groups.join("a", "t") is None
    assert groups.join("b", "t") is None
    assert groups.group().members["b"].epoch == 3
    assert driver.replies == []
    driver.release()
    assert [token for token, _ in driver.replies] == ["a", "b"]
    assert_reloads(groups)


def test_requests_that_make_no_sense_are_refused() -> None:
    groups = Groups(consumer_max_size=1)
    groups.create(t=1)
    bad: tuple[dict[str, Any], ...] = (
        {"member_id": " "},
        {"group": ""},
        {"instance_id": " "},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": groups.owned(t=[0])},
        {"topics": None},
    )
    for change in bad:
        named = {"rebalance_timeout_ms": 1, "owned": {}, "topics": ["t"], **change}
        assert groups.send(named.pop("member_id", "a"), 0, **named) is ErrorCode.invalid_request, change
    assert groups.send("a", -2) is ErrorCode.invalid_request
    assert groups.send("a", -3) is ErrorCode.invalid_request
    assert groups.join("a", "t", assignor="mine") is ErrorCode.unsupported_assignor
    assert groups.join("a", "t", assignor="range")["member_epoch"] == 2
    assert groups.join("b", "t") is ErrorCode.group_max_size_reached
    assert describe_consumer(groups.driver.shard.state, "g")["assignor_name"] == "range"
    old = groups.send("", 0, group="h", rebalance_timeout_ms=1, owned={}, topics=["t"], needs_member_id=False)
    assert len(old["member_id"]) == 22


def test_a_static_member_has_its_place_in_a_full_group() -> None:
    """KAFKA-20601: the limit is for members that would be one more."""
    groups = Groups(consumer_max_size=2)
    groups.create(t=4)
    groups.join("a", "t", instance_id="i")
    groups.join("b", "t", instance_id="j")
    assert groups.join("c", "t", instance_id="k") is ErrorCode.group_max_size_reached
    assert groups.join("c", "t") is ErrorCode.group_max_size_reached
    assert groups.join("a2", "t", instance_id="i") is ErrorCode.unreleased_instance_id
    groups.send("a", -2, instance_id="i")
    assert groups.join("a2", "t", instance_id="i")["error_code"] is ErrorCode.none
    assert sorted(groups.group().members) == ["a2", "b"]
    for member_id, instance_id, code in (
        ("a", "i", ErrorCode.fenced_instance_id),
        ("x", None, ErrorCode.group_max_size_reached),
        ("x", "k", ErrorCode.group_max_size_reached),
    ):
        assert groups.send(member_id, 5, instance_id=instance_id) is code, "one more, whether it joins or not"
    assert_reloads(groups)


def test_the_epochs_of_an_empty_group_are_equal() -> None:
    """KAFKA-20442: however the last member goes, and for the next coordinator too."""
    groups = Groups()
    groups.create(t=4)
    for goes in (
        lambda: groups.send("a", -1),
        lambda: groups.driver.wait(46_000),
        lambda: (groups.join("b", "t", "u"), groups.send("b", -1), groups.send("a", -1)),
    ):
        groups.join("a", "t")
        goes()
        group = groups.group()
        assert group.is_empty and group.epoch == group.assignment_epoch
        assert_reloads(groups)
    groups.join("a", "t")
    groups.join("b", "t")
    groups.send("a", -1)
    assert groups.group().epoch > groups.group().assignment_epoch, "the others are assigned to when they are heard of"


def commit(groups: Groups, member_id: str, epoch: int, partition: int = 0, *, version_9: bool = True) -> ErrorCode:
    offsets = [OffsetToCommit("t", partition, 9, -1, "", groups.topics["t"])]
    request = OffsetCommit(
        group_id="g", member_id=member_id, generation=epoch, offsets=offsets, knows_unknown_group=version_9
    )
    try:
        groups.driver.shard.ask("commit", request, groups.driver.now)
    except KafkaError as error:
        return error.code
    groups.driver.run()
    return ErrorCode.none


def test_commits_and_fetches_of_members_count_in_their_epochs() -> None:
    groups = shared()
    mine, others = groups.assigned("a")["t"], groups.assigned("b")["t"]
    assert commit(groups, "", -1) is ErrorCode.unknown_member_id
    assert commit(groups, "a", 4) is ErrorCode.stale_member_epoch
    assert commit(groups, "a", 3, mine[0], version_9=False) is ErrorCode.unsupported_version
    assert commit(groups, "a", 3, others[0]) is ErrorCode.none
    assert commit(groups, "a", 2, mine[0]) is ErrorCode.none, "it has had the partition since then"
    assert commit(groups, "a", 1, mine[0]) is ErrorCode.stale_member_epoch
    assert commit(groups, "b", 2, others[0]) is ErrorCode.stale_member_epoch
    assert commit(groups, "a", 2, others[0]) is ErrorCode.stale_member_epoch
    transaction = InTransaction(7, 0, NO_GUARD)
    offsets = [OffsetToCommit("t", mine[0], 9, -1, "")]
    for epoch, code in ((4, ErrorCode.illegal_generation), (1, ErrorCode.illegal_generation), (2, None), (-1, None)):
        member_id = "" if epoch == -1 else "a"
        request = OffsetCommit(group_id="g", member_id=member_id, generation=epoch, offsets=offsets)
        if code is None:
            groups.driver.shard.ask("txn", TxnOffsetCommit(request, transaction), groups.driver.now)
        else:
            with pytest.raises(KafkaError) as raised:
                groups.driver.shard.ask("txn", TxnOffsetCommit(request, transaction), groups.driver.now)
            assert raised.value.code is code
            newer = TxnOffsetCommit(replace(request, knows_unknown_group=True), transaction)  # version 6, KIP-1319
            with pytest.raises(KafkaError) as raised:
                groups.driver.shard.ask("txn", newer, groups.driver.now)
            assert raised.value.code is ErrorCode.stale_member_epoch
    for member, epoch, code in (
        ("a", 3, None),
        (None, -1, None),
        ("a", 2, ErrorCode.stale_member_epoch),
        ("x", 3, ErrorCode.unknown_member_id),
    ):
        if code is None:
            check_fetch(groups.driver.shard.state, "g", member, epoch)
        else:
            with pytest.raises(KafkaError) as raised:
                check_fetch(groups.driver.shard.state, "g", member, epoch)
            assert raised.value.code is code


def test_an_empty_group_is_deleted_or_goes_with_its_last_offset() -> None:
    groups = Groups(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=500)
    groups.create(t=1)
    groups.join("a", "t")
    shard, driver = groups.driver.shard, groups.driver
    shard.ask("delete", DeleteGroups(["g"]), driver.now)
    driver.run()
    assert driver.replies[-1][1] == {"groups": {"g": ErrorCode.non_empty_group}}
    groups.send("a", -1)
    driver.next_failure = ErrorCode.kafka_storage_error
    shard.ask("delete", DeleteGroups(["g"]), driver.now)
    driver.run()
    assert groups.state() == "Empty"
    assert commit(groups, "", -1) is ErrorCode.none
    driver.wait(2_000)
    assert shard.state.groups == {}
    driver.restart()
    assert driver.shard.state.groups == {}


def test_records_of_older_brokers_are_read() -> None:
    groups = shared()
    old = ConsumerGroupPartitionMetadataValue()
    groups.driver.log.append([GroupRecord(ModernKey(4, "g"), old)])
    offset = OffsetCommitValue(5, 0, "", WALL_START_MS, -1)
    groups.driver.log.insert(0, [GroupRecord(OffsetCommitKey("g", "t", 0), offset)])
    groups.driver.of_transactions.insert(0, -1)
    assert_reloads_with_flag(groups)
    groups.poll("a")
    assert GroupRecord(ModernKey(4, "g"), None) in groups.driver.log[-1]
    [topic] = fetch(groups.driver.shard.state, "g", None)
    assert topic.partitions[0].committed_offset == 5


def assert_reloads_with_flag(groups: Groups) -> None:
    assert_reloads(groups)
    assert groups.group().has_partition_metadata


def test_a_group_is_described_with_what_members_have_and_will_have() -> None:
    groups = shared()
    described = describe_consumer(groups.driver.shard.state, "g")
    assert (described["group_state"], described["group_epoch"], described["assignment_epoch"]) == ("Stable", 3, 3)
    assert described["assignor_name"] == "uniform"
    member = described["members"][0]
    assert member["member_id"] == "a" and member["member_type"] == 1
    assert member["assignment"] == member["target_assignment"]
    [row] = member["assignment"]["topic_partitions"]
    assert row["topic_name"] == "t" and len(row["partitions"]) == 2
    listed = list_groups(groups.driver.shard.state, frozenset({"stable"}), frozenset({"consumer"}))
    assert [each["group_id"] for each in listed] == ["g"]
    with pytest.raises(KafkaError, match="not found"):
        describe_consumer(groups.driver.shard.state, "h")
    assert describe(groups.driver.shard.state, "g")["error_code"] is ErrorCode.group_id_not_found
