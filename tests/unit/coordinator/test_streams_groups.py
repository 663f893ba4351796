"""Streams groups (KIP-1071): members join, change, leave; topics, tasks, statuses; failures; what a restart finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.effects import InTransaction
from ottla.coordinator.group.admin import list_groups
from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.offsets import check_fetch, fetch
from ottla.coordinator.group.requests import (
    DeleteGroups,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    SyncGroup,
    TxnOffsetCommit,
)
from ottla.coordinator.group.streams.assignor import MemberTasks
from ottla.coordinator.group.streams.describe import describe as describe_streams
from ottla.coordinator.group.streams.member import HeldTasks, MemberState, StreamsMember
from ottla.coordinator.group.streams.reconcile import reconciled
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD
from ottla.protocol.internal.group_records import GroupRecord, ModernKey
from ottla.protocol.schemas.records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsEndpoint,
    StreamsGroupTopologyValue,
    TopicInfo,
)
from tests.unit.coordinator.harness import WALL_START_MS
from tests.unit.coordinator.streams_groups import COUNTING, SIMPLE, Groups, rows, statuses, subtopology

SESSION_MS = 45_000
STALE, NO_SOURCE, WRONG_PARTITIONS, NO_INTERNAL, SHUTDOWN, DELAYED = range(6)
"""Statuses of an answer."""
TWICE = "Task offsets contain a duplicate entry for subtopology 0 and partition 1."


def shared(**config: Any) -> Groups:
    """Members a and b, each with two of the four tasks that read t."""
    groups = Groups(**config)
    groups.create(t=4)
    groups.join("a")
    groups.join("b")
    groups.settle()
    assert groups.state() == "Stable"
    assert sorted(map(len, (groups.active("a"), groups.active("b")))) == [2, 2]
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
        "topology",
        "active_processes",
        "standby_processes",
        "warmup_processes",
        "epoch",
        "assignment_epoch",
        "metadata_hash",
        "validated_topology_epoch",
        "assignment_configs",
        "assignment_timestamp_ms",
        "shown_state",
    ):
        assert getattr(after, name) == getattr(before, name), name


def in_log(groups: Groups) -> dict[Any, Any]:
    """What a compacted log would hold in the end."""
    latest = {str(record.key): record for batch in groups.driver.log for record in batch}
    return {key: record.value for key, record in latest.items() if record.value is not None}


def commit(groups: Groups, member_id: str, epoch: int, topic: str = "t", number: int = 0, *, knows: bool = True) -> Any:
    request = OffsetCommit(
        group_id="g",
        member_id=member_id,
        generation=epoch,
        knows_unknown_group=knows,
        offsets=[OffsetToCommit(topic, number, 9, -1, "")],
    )
    try:
        groups.driver.shard.ask("commit", request, groups.driver.now)
    except KafkaError as error:
        return error.code
    groups.driver.run()
    return ErrorCode.none


# Members and tasks


def test_tasks_are_given_up_before_others_get_them() -> None:
    groups = Groups()
    groups.create(t=4)
    first = groups.join("a")
    assert first["member_epoch"] == 2 and first["active_tasks"] == [{"subtopology_id": "0", "partitions": [0, 1, 2, 3]}]
    assert first["standby_tasks"] == first["warmup_tasks"] == [] and statuses(first) == []
    second = groups.join("b")
    assert (second["member_epoch"], second["active_tasks"]) == (3, [])
    assert groups.state() == "Reconciling"
    assert groups.group().members["b"].state is MemberState.UNRELEASED_TASKS
    told = groups.send("a", 2)
    assert told["member_epoch"] == 2 and [len(each["partitions"]) for each in told["active_tasks"]] == [2]
    assert groups.send("a", 2)["active_tasks"] is None, "it has still to give up, and was told"
    assert groups.poll("b")["member_epoch"] == 3
    assert groups.active("b") == []
    assert groups.poll("a")["member_epoch"] == 3
    assert [len(each["partitions"]) for each in groups.poll("b")["active_tasks"]] == [2]
    assert groups.state() == "Stable"
    assert_reloads(groups)


def test_an_answer_that_was_lost_is_given_again() -> None:
    groups = shared()
    member = groups.group().members["a"]
    assert (member.epoch, member.previous_epoch) == (3, 2)
    mine = rows(member.assigned.active)
    assert groups.send("a", 2, owned=(mine, (), ()))["member_epoch"] == 3
    everything, another = [("0", range(4))], [("1", ())]
    fenced = ErrorCode.fenced_member_epoch
    for epoch, owned in ((2, None), (2, (everything, (), ())), (2, (another, (), ())), (1, ((), (), ())), (4, None)):
        assert groups.send("a", epoch, owned=owned) is fenced, (epoch, owned)
    assert groups.send("c", 3) is ErrorCode.unknown_member_id
    assert groups.send("a", 3, group="other") is ErrorCode.group_id_not_found


def test_a_member_joins_again_with_epoch_zero() -> None:
    groups = shared()
    again = groups.join("a")
    assert again["member_epoch"] == 3 and len(again["active_tasks"][0]["partitions"]) == 2
    assert groups.group().epoch == 3, "nothing is new"
    groups.join("a", process_id="another")
    assert groups.group().epoch == 4


def test_members_that_leave_or_fall_silent_give_their_tasks_back() -> None:
    groups = shared()
    left = groups.send("b", -1)
    assert (left["member_epoch"], left["heartbeat_interval"], left["active_tasks"], left["status"]) == (-1, 0, None, ())
    assert groups.state() == "Assigning"
    groups.settle()
    assert groups.active("a") == ["0_0", "0_1", "0_2", "0_3"] and groups.group().epoch == 4
    groups.join("b")
    groups.settle()
    groups.driver.wait(SESSION_MS - 1)
    groups.poll("a")
    groups.driver.wait(1)
    assert [*groups.group().members] == ["a"]
    groups.driver.wait(SESSION_MS)
    assert groups.state() == "Empty"
    assert groups.send("a", -1) is ErrorCode.unknown_member_id
    assert groups.send("a", -1, group="other") is ErrorCode.group_id_not_found
    assert_reloads(groups)


def test_a_member_that_keeps_tasks_for_too_long_is_fenced() -> None:
    groups = Groups({"group.streams.session.timeout.ms": 1_000_000})
    groups.create(t=2)
    groups.join("a", rebalance_timeout_ms=5_000)
    groups.join("b")
    groups.send("a", 2)
    groups.driver.wait(4_999)
    assert "a" in groups.group().members
    groups.driver.wait(1)
    assert "a" not in groups.group().members
    groups.settle()
    assert groups.active("b") == ["0_0", "0_1"]


def test_a_member_that_has_given_up_in_time_is_not() -> None:
    groups = Groups({"group.streams.session.timeout.ms": 1_000_000})
    groups.create(t=2)
    groups.join("a", rebalance_timeout_ms=5_000)
    groups.join("b")
    groups.send("a", 2)
    groups.poll("a")
    groups.driver.wait(10_000)
    assert sorted(groups.group().members) == ["a", "b"]


def test_a_group_has_room_for_so_many_members() -> None:
    groups = shared(streams_max_size=2)
    assert groups.join("c") is ErrorCode.group_max_size_reached
    assert groups.send("c", 3) is ErrorCode.unknown_member_id
    assert groups.join("a")["member_epoch"] == 3, "who is a member has its place"
    assert groups.poll("a")["member_epoch"] == 3


def test_standbys_are_kept_by_other_processes() -> None:
    groups = Groups()
    groups.create(t=2, r=2, c=2)
    groups.join("a", COUNTING)
    groups.configure(num_standby_replicas="1")
    groups.join("b", COUNTING)
    groups.settle()
    assert groups.state() == "Stable"
    assert [*groups.standby("a"), *groups.standby("b")] and len(groups.active("a")) == len(groups.active("b")) == 2
    stateful = {each for member in "ab" for each in groups.active(member) if each.startswith("1")}
    assert {*groups.standby("a"), *groups.standby("b")} == stateful == {"1_0", "1_1"}
    for member, other in ("ab", "ba"):
        assert {*groups.standby(member)} <= {*groups.active(other)}
    assert_reloads(groups)
    groups.configure(num_standby_replicas="0")
    epoch = groups.group().epoch
    groups.settle()
    assert groups.group().epoch == epoch + 1 and groups.standby("a") == groups.standby("b") == []


def member_of(process: str = "p", state: MemberState = MemberState.STABLE, **tasks: Any) -> StreamsMember:
    return StreamsMember("m", epoch=2, previous_epoch=1, process_id=process, state=state, **tasks)


def test_a_task_waits_for_another_kind_of_it_in_the_same_process() -> None:
    groups = shared()
    group = groups.group()
    group.set_member("other", replace(member_of(), member_id="other", assigned=HeldTasks({}, {"1": frozenset({0})})))
    member = member_of()
    for target in (
        MemberTasks({"1": frozenset({0})}),
        MemberTasks({}, {"1": frozenset({0})}),
        MemberTasks({}, {}, {"1": frozenset({0})}),
    ):
        moved = reconciled(group, member, 3, target, None)
        assert (moved.state, moved.assigned.is_empty) == (MemberState.UNRELEASED_TASKS, True), target
        moved = reconciled(group, member_of("q"), 3, target, None)
        assert (moved.state, moved.epoch) == (MemberState.STABLE, 3), target
    active = MemberTasks({"1": frozenset({1})}), MemberTasks({}, {"1": frozenset({1})})
    group.set_member("third", replace(member_of("r"), member_id="third", assigned=HeldTasks({"1": {1: 2}})))
    states = [reconciled(group, member, 3, target, None).state for target in active]
    assert states == [MemberState.UNRELEASED_TASKS, MemberState.STABLE], "an active task has one process"


def test_a_member_in_a_state_of_a_newer_kafka_begins_again_without_tasks() -> None:
    group = shared().group()
    member = member_of(state=MemberState.UNKNOWN)
    for owned in (None, MemberTasks({"0": frozenset({0})})):
        with pytest.raises(KafkaError, match="unknown state"):
            reconciled(group, member, 3, MemberTasks(), owned)
    moved = reconciled(group, member, 3, MemberTasks(), MemberTasks())
    assert (moved.state, moved.epoch, moved.previous_epoch) == (MemberState.STABLE, 3, 2)


def test_two_steps_of_giving_up_have_two_epochs() -> None:
    """What a member has to give up in the end may change while it gives up."""
    group = shared().group()
    member = member_of(
        state=MemberState.UNREVOKED_TASKS, assigned=HeldTasks({"0": {0: 2}}), revoking=HeldTasks({"0": {1: 2}})
    )
    owned = MemberTasks({"0": frozenset({0})})
    moved = reconciled(group, member, 5, MemberTasks(), owned)
    assert (moved.state, moved.epoch) == (MemberState.UNREVOKED_TASKS, 3)
    assert (moved.assigned, moved.revoking) == (HeldTasks(), HeldTasks({"0": {0: 2}}))
    assert reconciled(group, moved, 5, MemberTasks(), None) is moved, "who says nothing is taken to have all"
    assert reconciled(group, moved, 5, MemberTasks(), MemberTasks()).epoch == 5


# Time


def test_the_first_assignment_waits_for_more_members() -> None:
    groups = Groups({"group.streams.initial.rebalance.delay.ms": 3_000})
    groups.create(t=4)
    for member_id in "ab":
        joined = groups.join(member_id)
        assert (joined["member_epoch"], joined["active_tasks"], statuses(joined)) == (1, [], [DELAYED])
    assert "initial rebalance delay" in joined["status"][0]["status_detail"]
    groups.driver.wait(2_999)
    assert groups.group().assignment_epoch == 1
    groups.driver.wait(1)
    assert groups.group().assignment_epoch == groups.group().epoch == 3
    groups.settle()
    assert sorted(map(len, (groups.active("a"), groups.active("b")))) == [2, 2]
    assert groups.join("c")["member_epoch"] == 4, "later ones do not wait"


def test_the_delay_begins_again_with_an_empty_group_and_ends_with_one_that_is_deleted() -> None:
    groups = Groups({"group.streams.initial.rebalance.delay.ms": 3_000})
    groups.create(t=4)
    groups.join("a")
    groups.send("a", -1)
    groups.driver.wait(3_000)
    assert groups.group().assignment_epoch == groups.group().epoch == 3, "nobody is there"
    assert statuses(groups.join("a")) == [DELAYED]
    groups.send("a", -1)
    groups.driver.shard.ask("delete", DeleteGroups(["g"]), groups.driver.now)
    groups.driver.run()
    groups.driver.wait(2_000)
    groups.join("a")
    groups.driver.wait(2_000)
    groups.poll("a")
    assert groups.group().assignment_epoch == 1, "the delay of the group before does not count"
    groups.driver.wait(1_000)
    assert groups.group().assignment_epoch == 2


def test_assignments_have_an_interval() -> None:
    groups = Groups({"group.streams.assignment.interval.ms": 1_000})
    groups.create(t=4)
    groups.join("a")
    late = groups.join("b")
    assert (late["member_epoch"], statuses(late)) == (2, [DELAYED])
    assert "assignment interval" in late["status"][0]["status_detail"]
    groups.driver.wait(1_000)
    assert statuses(groups.poll("b")) == [] and groups.group().assignment_epoch == 3
    groups.configure(assignment_interval_ms="60000")
    groups.join("c")
    groups.driver.wait(14_999)
    assert statuses(groups.poll("c")) == [DELAYED]
    groups.driver.wait(1)
    assert statuses(groups.poll("c")) == [], "the broker has an upper bound of 15 s"


def test_a_group_has_settings_of_its_own() -> None:
    groups = shared()
    groups.configure(heartbeat_interval_ms="7000", session_timeout_ms="50000")
    assert groups.poll("a")["heartbeat_interval"] == 7_000
    groups.driver.wait(SESSION_MS)
    assert [*groups.group().members] == ["a"]
    groups.driver.wait(5_000)
    assert groups.group().is_empty


# Topics


def test_internal_topics_that_are_missing_are_named_until_they_are_there() -> None:
    groups = Groups()
    groups.create(t=3)
    joined = groups.join("a", COUNTING)
    assert (joined["member_epoch"], joined["active_tasks"], statuses(joined)) == (2, [], [NO_INTERNAL])
    assert joined["status"][0]["status_detail"] == "Internal topics are missing: c, r"
    assert {
        name: (each.partitions, each.replication_factor, each.configs) for name, each in joined["creatable"].items()
    } == {"r": (3, None, {}), "c": (3, None, {"cleanup.policy": "compact"})}
    assert groups.state() == "NotReady" and groups.group().validated_topology_epoch == -1
    assert statuses(groups.poll("a")) == [NO_INTERNAL]
    assert groups.group().epoch == 2
    groups.create(r=3)
    assert [*groups.poll("a")["creatable"]] == ["c"]
    groups.create(c=3)
    ready = groups.poll("a")
    assert statuses(ready) == [] and not ready["creatable"]
    assert groups.active("a") == ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
    assert groups.state() == "Stable"
    assert_reloads(groups)


def test_topics_that_an_application_cannot_run_with() -> None:
    groups = Groups()
    joined = groups.join("a", COUNTING)
    assert statuses(joined) == [NO_SOURCE] and not joined["creatable"]
    assert joined["status"][0]["status_detail"] == "Source topics t are missing."
    groups.create(t=2, c=3)
    wrong = groups.poll("a")
    assert statuses(wrong) == [WRONG_PARTITIONS] and not wrong["creatable"]
    assert groups.active("a") == []


def test_topics_that_change_make_the_group_assign_again() -> None:
    groups = shared()
    groups.create(t=6)
    assert groups.poll("a")["member_epoch"] == 4
    groups.settle()
    assert len({*groups.active("a"), *groups.active("b")}) == 6
    groups.create(unrelated=1)
    epoch = groups.group().epoch
    groups.settle()
    assert groups.group().epoch == epoch
    groups.delete("t")
    assert statuses(groups.poll("a")) == [NO_SOURCE]
    assert groups.state() == "NotReady"
    groups.settle()
    assert groups.active("a") == groups.active("b") == []


def test_an_older_topology_is_stale_and_another_one_is_refused() -> None:
    groups = Groups()
    groups.create(t=4, u=2)
    assert groups.join("a", SIMPLE.replaced(epoch=1))["member_epoch"] == 2
    stale = groups.join("b", SIMPLE.replaced(epoch=0))
    assert statuses(stale) == [STALE]
    assert stale["status"][0]["status_detail"] == (
        "The member's topology epoch 0 is behind the group's topology epoch 1."
    )
    assert statuses(groups.poll("b")) == [STALE]
    other = StreamsGroupTopologyValue(1, (subtopology("0", "u"),))
    for topology in (other, SIMPLE.replaced(epoch=2)):
        assert groups.join("c", topology) is ErrorCode.invalid_request
    reordered = StreamsGroupTopologyValue(0, COUNTING.subtopologies[::-1])
    assert groups.join("a", COUNTING, group="h")["member_epoch"] == 2
    assert groups.join("b", reordered, group="h")["member_epoch"] == 3
    twice = StreamsGroupTopologyValue(0, SIMPLE.subtopologies * 2)
    assert groups.join("a", twice, group="i") is ErrorCode.invalid_request
    assert "i" not in groups.driver.shard.state.groups


# Applications


def test_one_member_may_stop_all() -> None:
    groups = shared()
    answer = groups.poll("a", shuts_down=True)
    assert statuses(answer) == statuses(groups.poll("b")) == [SHUTDOWN]
    assert answer["status"][0]["status_detail"] == (
        "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
    )
    groups.send("a", -1)
    assert statuses(groups.poll("b")) == [SHUTDOWN]
    groups.send("b", -1)
    assert statuses(groups.join("c")) == []
    assert statuses(groups.join("d")) == []
    groups.send("c", -1, shuts_down=True)
    assert statuses(groups.poll("d")) == [SHUTDOWN]


def test_members_learn_where_others_answer_queries() -> None:
    groups = Groups()
    groups.create(t=2)
    first = groups.join("a", user_endpoint=StreamsEndpoint("h1", 1))
    mine = {
        "user_endpoint": {"host": "h1", "port": 1},
        "standby_partitions": [],
        "active_partitions": [{"topic": "t", "partitions": (0, 1)}],
    }
    assert first["partitions_by_user_endpoint"] == [mine]
    assert first["endpoint_information_epoch"] == 0, "the group was not there yet"
    assert groups.poll("a")["partitions_by_user_endpoint"] is None
    second = groups.join("b", user_endpoint=StreamsEndpoint("h2", 2))
    assert second["endpoint_information_epoch"] == 1
    assert [each["user_endpoint"]["host"] for each in second["partitions_by_user_endpoint"]] == ["h1", "h2"]
    groups.settle()
    known = groups.group().endpoint_epoch
    told = groups.poll("a", endpoint_epoch=known - 1)
    assert told["endpoint_information_epoch"] == known
    assert [len(each["active_partitions"][0]["partitions"]) for each in told["partitions_by_user_endpoint"]] == [1, 1]
    assert groups.poll("a", endpoint_epoch=known)["partitions_by_user_endpoint"] is None


def test_no_more_partitions_are_shown_than_a_topic_has() -> None:
    groups = Groups()
    groups.create(t=4, u=2)
    topology = StreamsGroupTopologyValue(0, (subtopology("0", "t", "u"),))
    joined = groups.join("a", topology, user_endpoint=StreamsEndpoint("h", 1))
    found = joined["partitions_by_user_endpoint"][0]["active_partitions"]
    assert found == [{"topic": "t", "partitions": (0, 1, 2, 3)}, {"topic": "u", "partitions": (0, 1)}]


def test_a_group_is_described() -> None:
    groups = Groups()
    groups.create(t=2)
    groups.join("a", COUNTING, user_endpoint=StreamsEndpoint("h", 1), client_tags=(("zone", "z"),), rack_id="r")
    found = describe_streams(groups.driver.shard.state, "g")
    assert (found["group_state"], found["group_epoch"], found["assignment_epoch"]) == ("NotReady", 2, 2)
    reads = found["topology"]["subtopologies"][1]
    assert [each["partitions"] for each in reads["repartition_source_topics"]] == [0], "as it was told"
    groups.create(r=2, c=2)
    groups.settle()
    found = describe_streams(groups.driver.shard.state, "g")
    reads = found["topology"]["subtopologies"][1]
    assert (reads["subtopology_id"], reads["source_topics"], reads["repartition_sink_topics"]) == ("1", [], [])
    assert [
        (each["name"], each["partitions"], each["replication_factor"]) for each in reads["repartition_source_topics"]
    ] == [("r", 2, 0)]
    assert reads["state_changelog_topics"] == [
        {
            "name": "c",
            "partitions": 2,
            "replication_factor": 0,
            "topic_configs": [{"key": "cleanup.policy", "value": "compact"}],
        }
    ]
    member = found["members"][0]
    assert (
        member["assignment"]
        == member["target_assignment"]
        == {
            "active_tasks": [
                {"subtopology_id": "0", "partitions": [0, 1]},
                {"subtopology_id": "1", "partitions": [0, 1]},
            ],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
    )
    assert member["user_endpoint"] == {"host": "h", "port": 1}
    assert member["client_tags"] == [{"key": "zone", "value": "z"}]
    assert (member["process_id"], member["rack_id"], member["topology_epoch"]) == ("p-a", "r", 0)
    with pytest.raises(KafkaError, match="Group h not found"):
        describe_streams(groups.driver.shard.state, "h")


# Requests that are refused


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"instance_id": " "}, "InstanceId can't be empty."),
        ({"task_offsets": [("0", 1, 5), ("0", 1, 6)]}, TWICE),
        ({"task_end_offsets": [("0", 1, 5), ("0", 1, 5)]}, TWICE),
        (
            {"task_offsets": [("0", each, 5) for each in range(10_001)]},
            "Offsets of 10001 tasks are reported; a group has at most 10000.",
        ),
        ({"owned": ((), (), (("0", (0,)),))}, "WarmupTasks must be empty when (re-)joining."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"owned": ((("0", (0,)),), (), ())}, "ActiveTasks must be empty when (re-)joining."),
        ({"owned": ((), None, ())}, "StandbyTasks must be empty when (re-)joining."),
        ({"owned": ((), (), None)}, "WarmupTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"epoch": 1}, "Topology can only be provided when (re-)joining."),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"epoch": 1, "owned": ((), None, ())}, "If one task-type is non-null, all must be non-null."),
    ],
)
def test_what_no_member_may_send(changed: dict[str, Any], sentence: str) -> None:
    groups = Groups()
    asked: dict[str, Any] = {
        "member_id": "m",
        "epoch": 0,
        "rebalance_timeout_ms": 1,
        "owned": ((), (), ()),
        "topology": SIMPLE,
        **changed,
    }
    with pytest.raises(KafkaError) as raised:
        groups.sent(**asked)
    assert (raised.value.code, raised.value.message) == (ErrorCode.invalid_request, sentence)
    assert groups.driver.log == []


def test_topologies_that_are_refused() -> None:
    groups = Groups()
    pattern = SIMPLE.subtopologies[0].replaced(source_topic_regex=("a.*",))
    assert groups.join("a", StreamsGroupTopologyValue(0, (pattern,))) is ErrorCode.invalid_request
    sized = SIMPLE.subtopologies[0].replaced(state_changelog_topics=(TopicInfo("c", 3, 0, ()),))
    assert groups.join("a", StreamsGroupTopologyValue(0, (sized,))) is ErrorCode.streams_invalid_topology
    groups.create(t=1)
    unread = StreamsGroupTopologyValue(0, (*SIMPLE.subtopologies, subtopology("1", reads=["r"])))
    assert groups.join("a", unread) is ErrorCode.streams_invalid_topology
    assert "g" not in groups.driver.shard.state.groups


def test_tasks_that_there_are_not() -> None:
    groups = shared()
    for owned in ([("9", [0])], [("0", [4])], [("0", [-1])]):
        assert groups.poll("a", owned=(owned, (), ())) is ErrorCode.invalid_request, owned
    tags = (("k", "1"), ("k", "2"))
    assert groups.poll("a", client_tags=tags) is ErrorCode.invalid_request
    groups.join("c")
    twice = [("0", [0]), ("0", [1])]
    assert groups.poll("a", owned=(twice, (), ())) is ErrorCode.invalid_request


# Offsets


def test_commits_of_members_have_their_epoch() -> None:
    groups = shared()
    mine = int(groups.active("a")[0].split("_")[1])
    since = groups.group().members["a"].assigned.active["0"][mine]
    assert commit(groups, "a", 3, number=mine) is ErrorCode.none
    assert since == 2 and commit(groups, "a", 2, number=mine) is ErrorCode.none, "it has had the task since then"
    others = int(groups.active("b")[0].split("_")[1])
    stale = ErrorCode.stale_member_epoch
    for epoch, topic, number in ((4, "t", mine), (1, "t", mine), (2, "t", others), (2, "u", mine)):
        assert commit(groups, "a", epoch, topic, number) is stale, (epoch, topic, number)
    assert commit(groups, "x", 3) is ErrorCode.unknown_member_id
    assert commit(groups, "", -1) is ErrorCode.unknown_member_id
    assert commit(groups, "a", 3, number=mine, knows=False) is ErrorCode.unsupported_version
    shard = groups.driver.shard
    check_fetch(shard.state, "g", None, -1)
    check_fetch(shard.state, "g", "a", 3)
    for member_id, epoch, code in (("a", 2, stale), ("x", 3, ErrorCode.unknown_member_id)):
        with pytest.raises(KafkaError) as raised:
            check_fetch(shard.state, "g", member_id, epoch)
        assert raised.value.code is code
    groups.send("a", -1)
    groups.send("b", -1)
    assert commit(groups, "", -1) is ErrorCode.none, "an operator's, to an empty group"


def test_commits_of_transactions() -> None:
    groups = shared()
    mine = int(groups.active("a")[0].split("_")[1])

    def outcome(member_id: str, epoch: int) -> ErrorCode:
        request = OffsetCommit(
            group_id="g", member_id=member_id, generation=epoch, offsets=[OffsetToCommit("t", mine, 9, -1, "")]
        )
        try:
            transaction = InTransaction(1, 0, NO_GUARD)
            groups.driver.shard.ask("commit", TxnOffsetCommit(request, transaction), groups.driver.now)
        except KafkaError as error:
            return error.code
        groups.driver.run()
        return ErrorCode.none

    assert [outcome("a", 3), outcome("a", 2), outcome("", -1)] == [ErrorCode.none] * 3
    assert [outcome("a", 4), outcome("a", 1)] == [ErrorCode.illegal_generation] * 2
    assert outcome("x", 3) is ErrorCode.unknown_member_id


def test_offsets_of_topics_that_are_read_are_neither_deleted_nor_expire() -> None:
    hour = 3_600_000
    groups = shared(offsets_retention_ms=hour, offsets_retention_check_interval_ms=60_000)
    old = OffsetCommitValue(5, 0, "", WALL_START_MS - 2 * hour, -1)
    groups.driver.log += [[GroupRecord(OffsetCommitKey("g", topic, 0), old)] for topic in ("t", "unread")]
    groups.driver.restart()

    def deleted(topic: str) -> ErrorCode:
        groups.driver.shard.ask("delete", OffsetDelete("g", {topic: [0]}), groups.driver.now)
        groups.driver.run()
        (error,) = groups.driver.replies[-1][1]["partitions"].values()
        return ErrorCode(error)

    assert deleted("t") is ErrorCode.group_subscribed_to_topic
    for _ in range(3):
        groups.driver.wait(30_000)
        groups.settle(1)
    names = [each.name for each in fetch(groups.driver.shard.state, "g", None)]
    assert names == ["t"], "what nobody reads has expired"
    groups.send("a", -1)
    groups.send("b", -1)
    assert deleted("t") is ErrorCode.none
    groups.driver.wait(120_000)
    assert "g" not in groups.driver.shard.state.groups and in_log(groups) == {}, "and with its last offset the group"


# Other protocols


def classic_join(groups: Groups, name: str = "g") -> Any:
    request = JoinGroup(
        group_id=name,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols={"range": b""},
        require_known_member_id=False,
    )
    groups.driver.shard.ask("join", request, groups.driver.now)
    groups.driver.run()
    return groups.driver.replies[-1][1]["error_code"]


def test_classic_requests_of_a_streams_group() -> None:
    groups = shared()
    assert classic_join(groups) is ErrorCode.inconsistent_group_protocol
    shard, now = groups.driver.shard, groups.driver.now
    shard.ask("sync", SyncGroup(group_id="g", generation=3, member_id="a"), now)
    groups.driver.run()
    assert groups.driver.replies[-1][1]["error_code"] is ErrorCode.unknown_member_id
    with pytest.raises(KafkaError, match="unknown_member_id"):
        groups.driver.heartbeat("g", "a", None, 3)
    shard.ask("leave", LeaveGroup("g", [Leaving("a")]), now)
    groups.driver.run()
    (row,) = groups.driver.replies[-1][1]["members"]
    assert row["error_code"] is ErrorCode.unknown_member_id
    assert describe(shard.state, "g")["error_code"] is ErrorCode.group_id_not_found
    listed = list_groups(shard.state, (), ())
    assert [(each["group_type"], each["protocol_type"], each["group_state"]) for each in listed] == [
        ("streams", "streams", "Stable")
    ]


def test_empty_groups_change_hands() -> None:
    groups = Groups()
    groups.create(t=1)
    assert commit(groups, "", -1) is ErrorCode.none
    assert groups.join("a")["member_epoch"] == 2, "a group of offsets only becomes a streams group"
    assert [each.name for each in fetch(groups.driver.shard.state, "g", None)] == ["t"]
    groups.driver.restart()
    assert [each.name for each in fetch(groups.driver.shard.state, "g", None)] == ["t"]
    groups.send("a", -1)
    assert classic_join(groups) is ErrorCode.none
    assert groups.join("a") is ErrorCode.group_id_not_found, "it has a member"
    groups.driver.restart()
    assert groups.driver.shard.state.groups["g"].group_type == "classic"
    assert [each.name for each in fetch(groups.driver.shard.state, "g", None)] == ["t"]
    assert not [key for key in in_log(groups) if key.startswith("ModernKey")]


def test_states_in_filters() -> None:
    groups = Groups()
    groups.join("a")
    shard = groups.driver.shard
    assert [len(list_groups(shard.state, {each}, ())) for each in ("notready", "not_ready", "empty")] == [0, 1, 0]


def test_an_empty_group_is_deleted_with_all_its_records() -> None:
    groups = shared()

    def delete() -> ErrorCode:
        groups.driver.shard.ask("delete", DeleteGroups(["g"]), groups.driver.now)
        groups.driver.run()
        answer = groups.driver.replies[-1][1]
        return answer if isinstance(answer, ErrorCode) else answer["groups"]["g"]

    commit(groups, "a", 3)
    assert delete() is ErrorCode.non_empty_group
    groups.send("a", -1)
    groups.send("b", -1)
    groups.driver.next_failure = ErrorCode.kafka_storage_error
    assert delete() is ErrorCode.not_coordinator
    assert groups.state() == "Empty"
    assert delete() is ErrorCode.none
    assert in_log(groups) == {}
    kinds = [record.key.type for record in groups.driver.log[-1] if isinstance(record.key, ModernKey)]
    assert kinds == [20, 17, 23], "in the order that Kafka checks"
    assert delete() is ErrorCode.group_id_not_found
    groups.driver.restart()
    assert "g" not in groups.driver.shard.state.groups


# The log


def test_answers_wait_for_the_log() -> None:
    groups = Groups()
    groups.create(t=1)
    groups.driver.holding = True
    assert groups.join("a") is None
    assert groups.send("a", 2) is None, "a heartbeat that changes nothing waits for what was decided before"
    groups.driver.release()
    assert [token for token, _ in groups.driver.replies] == ["a", "a"]


def test_what_cannot_be_written_has_not_happened() -> None:
    groups = Groups()
    groups.create(t=4)

    def failing(call: Any) -> Any:
        groups.driver.next_failure = ErrorCode.kafka_storage_error
        return call()

    assert failing(lambda: groups.join("a")) is ErrorCode.not_coordinator
    assert "g" not in groups.driver.shard.state.groups
    commit(groups, "", -1)
    assert failing(lambda: groups.join("a")) is ErrorCode.not_coordinator
    assert groups.driver.shard.state.groups["g"].group_type == "classic"
    groups.join("a")
    before = groups.group()
    assert failing(lambda: groups.join("b")) is ErrorCode.not_coordinator
    assert groups.group() is before and [*before.members] == ["a"]
    assert (before.epoch, before.assignment_epoch, [*before.targets]) == (2, 2, ["a"])
    assert before.shown_state == "Stable" and len(before.active_processes) == 4
    groups.create(t=5)
    assert failing(lambda: groups.poll("a")) is ErrorCode.not_coordinator
    groups.poll("a")
    assert len(groups.active("a")) == 5 and groups.state() == "Stable"
    assert failing(lambda: groups.send("a", -1)) is ErrorCode.not_coordinator
    assert [*groups.group().members] == ["a"]
    groups.driver.next_failure = ErrorCode.kafka_storage_error
    groups.driver.wait(SESSION_MS)
    assert [*groups.group().members] == ["a"]
    groups.driver.wait(SESSION_MS)
    assert groups.state() == "Empty"
    assert_reloads(groups)


def test_a_new_coordinator_gives_members_a_session() -> None:
    groups = shared()
    groups.driver.restart()
    groups.driver.wait(SESSION_MS - 1)
    assert len(groups.group().members) == 2
    assert groups.poll("a")["member_epoch"] == 3
    groups.driver.wait(1)
    assert [*groups.group().members] == ["a"]


def test_who_gives_up_when_the_coordinator_moves_has_time_for_it_again() -> None:
    groups = Groups({"group.streams.session.timeout.ms": 1_000_000})
    groups.create(t=2)
    groups.join("a", rebalance_timeout_ms=5_000)
    groups.join("b")
    groups.send("a", 2)
    groups.driver.wait(4_000)
    groups.driver.restart()
    groups.driver.wait(4_999)
    assert "a" in groups.group().members
    groups.driver.wait(1)
    assert "a" not in groups.group().members


def test_a_compacted_log_in_any_order_is_read() -> None:
    groups = shared()
    latest = {str(record.key): record for batch in groups.driver.log for record in batch}
    groups.driver.log = [[record] for record in reversed(latest.values()) if record.value is not None]
    groups.driver.of_transactions = []
    before = groups.group()
    groups.driver.restart()
    after = groups.group()
    assert (after.members, after.targets, after.topology) == (before.members, before.targets, before.topology)
    groups.settle()
    assert groups.state() == "Stable" and groups.group().epoch == before.epoch
    tombstones = [GroupRecord(key, None) for key in (GroupMetadataKey("g"), ModernKey(22, "g", "gone"))]
    groups.driver.log += [[each] for each in tombstones]
    groups.driver.restart()
    assert groups.group().members == before.members
