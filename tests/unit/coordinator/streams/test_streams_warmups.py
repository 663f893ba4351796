"""Warm-up tasks of streams groups: a stateful task runs where it is until the member that gets it has restored it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from ottla.coordinator.group.streams.assignor import MemberTasks, SubtopologySize, TaskMember, assign_tasks
from ottla.coordinator.group.streams.member import HeldTasks, MemberState, StreamsMember
from ottla.coordinator.group.streams.warmups import UNKNOWN_OFFSET, Limits, Reported, refine
from ottla.protocol.schemas.records import StreamsGroupTopologyValue
from tests.unit.coordinator.streams_groups import SIMPLE, Groups, named, statuses, subtopology
from tests.unit.coordinator.test_streams_groups import assert_reloads

KEEPS = StreamsGroupTopologyValue(0, (subtopology("0", "t", keeps=["c"]),))
"""One subtopology with state, that reads t."""
NOTHING: dict[str, Any] = {"task_offsets": [], "task_end_offsets": []}


def at(*numbers: int, offset: int, end: int) -> dict[str, Any]:
    """A report of tasks that are restored as far as `offset`."""
    return {
        "task_offsets": [("0", each, offset) for each in numbers],
        "task_end_offsets": [("0", each, end) for each in numbers],
    }


def warmup(groups: Groups, member_id: str) -> list[str]:
    return named(groups.group().members[member_id].assigned.warmup)


def alone(topology: StreamsGroupTopologyValue = KEEPS, tasks: int = 4, **settings: Any) -> Groups:
    groups = Groups({f"group.streams.{name.replace('_', '.')}": value for name, value in settings.items()})
    groups.create(t=tasks, c=tasks)
    groups.join("a", topology, **NOTHING)
    groups.settle()
    return groups


def test_a_task_moves_once_it_is_warm() -> None:
    groups = alone()
    groups.join("b", KEEPS, **NOTHING)
    groups.settle()
    assert len(groups.active("a")) == 4 and groups.active("b") == []
    moving = warmup(groups, "b")
    assert len(moving) == 2 and named(groups.group().target("b").active) == moving
    assert groups.state() == "Stable"
    assert_reloads(groups)  # what it warms up is in its record; nothing moves before it reports
    groups.settle()
    assert warmup(groups, "b") == moving
    numbers = [int(each[2:]) for each in moving]
    groups.poll("b", **at(*numbers, offset=5, end=20_000))
    groups.settle()
    assert warmup(groups, "b") == moving
    epoch = groups.group().epoch
    groups.poll("b", **at(*numbers, offset=10_000, end=20_000))
    groups.settle()
    assert groups.active("b") == moving and warmup(groups, "b") == []
    assert groups.group().epoch == groups.group().assignment_epoch > epoch
    assert_reloads(groups)


def test_tasks_wait_for_their_turn() -> None:
    groups = alone(tasks=8, num_warmup_replicas=1)
    groups.join("b", KEEPS, **NOTHING)
    groups.settle()
    seen = []
    for _ in range(4):
        (warm,) = warmup(groups, "b")
        seen.append(warm)
        assert len(groups.active("a")) + len(groups.active("b")) == 8
        groups.poll("b", **at(int(warm[2:]), offset=9, end=9))
        groups.settle()
    assert sorted(seen) == groups.active("b") and warmup(groups, "b") == []


def test_tasks_move_at_once_where_nobody_can_warm_up() -> None:
    for topology, settings, report in (
        (SIMPLE, {}, NOTHING),
        (KEEPS, {"num_warmup_replicas": 0}, NOTHING),
        (KEEPS, {}, {}),
    ):
        groups = alone(topology, **settings)
        groups.join("b", topology, **report)
        groups.settle()
        assert len(groups.active("b")) == 2 and warmup(groups, "b") == [], (topology, settings, report)


def test_a_member_of_the_same_process_has_the_state() -> None:
    groups = alone()
    groups.join("b", KEEPS, process_id="p-a", **NOTHING)
    groups.settle()
    assert len(groups.active("b")) == 2


def test_who_warmed_up_takes_over_when_the_owner_goes() -> None:
    groups = alone()
    groups.join("b", KEEPS, **NOTHING)
    groups.settle()
    groups.send("a", -1)
    groups.settle()
    assert len(groups.active("b")) == 4 and warmup(groups, "b") == []


def test_a_warm_standby_runs_a_task_until_its_new_owner_is_warm() -> None:
    member = StreamsMember("a", process_id="p", assigned=HeldTasks({}, {"0": frozenset({0})}))
    members = {"a": member, "b": StreamsMember("b", process_id="q")}
    targets = {"a": MemberTasks(standby={"0": frozenset({0})}), "b": MemberTasks({"0": frozenset({0})})}
    warm = Reported({"0": {0: 7}}, {"0": {0: 7}})
    found = refine(members, targets, {"a": warm, "b": Reported({}, {})}, {"0"}, Limits(2, 10), 2)
    assert found["a"] == MemberTasks({"0": frozenset({0})})
    assert found["b"] == MemberTasks(warmup={"0": frozenset({0})})
    unknown = Reported({"0": {0: 7}}, {"0": {0: UNKNOWN_OFFSET}})
    assert refine(members, targets, {"a": unknown, "b": Reported({}, {})}, {"0"}, Limits(2, 10), 2) == {}


def test_state_on_disk_that_is_no_copy_warms_up_before_its_task_moves() -> None:
    """What a member reports of a task that it does not have (a dormant one) may be old: nothing follows the changelog
    there. Where the task runs nowhere, the state on disk is better than none."""
    owner = StreamsMember("a", process_id="p", assigned=HeldTasks({"0": {0: 1}}))
    members = {"a": owner, "b": StreamsMember("b", process_id="q")}
    targets = {"a": MemberTasks(), "b": MemberTasks({"0": frozenset({0})})}
    reports = {"a": Reported({}, {}), "b": Reported({"0": {0: 7}}, {"0": {0: 7}})}
    found = refine(members, targets, reports, {"0"}, Limits(2, 10), 2)
    assert found == {"a": MemberTasks({"0": frozenset({0})}), "b": MemberTasks(warmup={"0": frozenset({0})})}
    idle = {"a": StreamsMember("a", process_id="p"), "b": members["b"]}
    assert refine(idle, targets, reports, {"0"}, Limits(2, 10), 2) == {}


def test_settings_that_change_move_what_waits() -> None:
    groups = alone()
    groups.join("b", KEEPS, **NOTHING)
    groups.settle()
    assert groups.active("b") == []
    groups.configure(num_warmup_replicas="0")
    groups.settle()
    assert len(groups.active("b")) == 2


def test_any_group_comes_to_its_target() -> None:
    """Members come, go, restore and report; the coordinator moves. No task is active twice or, when all have settled,
    missing; none has more warm-ups than it may; a process has a task once; the log says the same."""
    done: Counter[str] = Counter()
    for seed in range(25):
        dice = random.Random(seed)
        groups = alone(tasks=dice.randint(2, 7), num_standby_replicas=dice.choice([0, 1]), num_warmup_replicas=2)
        for step in range(30):
            match dice.choices(["join", "leave", "report", "poll", "reload"], [3, 2, 6, 12, 1])[0]:
                case "join" if len(groups.group().members) < 5:
                    process = f"p{dice.randint(1, 4)}"
                    reports: dict[str, Any] = NOTHING if dice.random() < 0.8 else {}
                    groups.join(f"m{step}", KEEPS, process_id=process, **reports)
                case "leave" if len(groups.group().members) > 1:
                    groups.send(dice.choice([*groups.group().members]), -1)
                case "report":
                    name = dice.choice([*groups.group().members])
                    has = groups.group().members[name].assigned
                    numbers = {*has.standby.get("0", ()), *has.warmup.get("0", ())}
                    groups.poll(name, **at(*sorted(numbers), offset=0, end=dice.choice([0, 20_000])))
                case "poll":
                    groups.poll(dice.choice([*groups.group().members]))
                case "reload":
                    assert_reloads(groups)
            done["warm-ups"] += check(groups, seed)
        for _ in range(12):
            for name, member in [*groups.group().members.items()]:
                has = member.assigned
                numbers = {*has.standby.get("0", ()), *has.warmup.get("0", ())}
                groups.poll(name, **at(*sorted(numbers), offset=9, end=9))
            groups.settle(2)
        group = groups.group()
        assert group.shown_state == "Stable", seed
        for name, member in group.members.items():
            assert member.assigned.is_same(group.target(name)), (seed, name)
        assert_reloads(groups)
    assert done["warm-ups"] > 100, done


def check(groups: Groups, seed: int) -> int:
    members = groups.group().members.values()
    active = Counter(task for each in members for task in named(each.assigned.active))
    assert not active or max(active.values()) == 1, seed
    held = Counter((each.process_id, task) for each in members for kind in each.assigned for task in named(kind))
    assert not held or max(held.values()) == 1, seed
    planned = sum(len(named(each.warmup)) for each in groups.group().refined.others.values())
    assert planned <= 2, seed
    return sum(len(named(each.assigned.warmup)) for each in members)


# Client tags


def test_the_answer_names_tags_that_a_member_lacks() -> None:
    groups = Groups({"group.streams.rack.aware.assignment.tags": ("zone", "cluster")})
    groups.create(t=2)
    response = groups.join("a", client_tags=[("zone", "x")])
    assert statuses(response) == [6]
    assert "[cluster]" in response["status"][0]["status_detail"]
    assert statuses(groups.join("b", client_tags=[("zone", "x"), ("cluster", "y")])) == []
    assert statuses(groups.join("c", is_version_1=False)) == []


def test_standbys_are_in_other_zones() -> None:
    """With as many processes in each of three zones, each copy of a task is in another one; and stays where it is."""
    members = {
        f"m{number}": TaskMember(f"p{number}", None, None, {"zone": "xyz"[number % 3]}, MemberTasks())
        for number in range(6)
    }
    sizes = {"0": SubtopologySize(20, True)}
    first = assign_tasks(members, sizes, 2, ["zone"])
    for _ in range(2):
        for number in range(20):
            zones = Counter(
                members[name].client_tags["zone"]
                for name, tasks in first.items()
                for kind in tasks
                if number in kind.get("0", ())
            )
            assert zones == {"x": 1, "y": 1, "z": 1}
        loads = [sum(len(kind.get("0", ())) for kind in tasks) for tasks in first.values()]
        assert max(loads) - min(loads) <= 2
        again = {name: each._replace(tasks=first[name]) for name, each in members.items()}
        second = assign_tasks(again, sizes, 2, ["zone"])
        assert second == first
        first = second


def half_way() -> Groups:
    """The owner has heard that it goes on with what is to be another's, and the other has heard nothing yet."""
    groups = alone(num_warmup_replicas=1)
    for name in ("b", "c"):
        groups.join(name, KEEPS, **NOTHING)
        groups.settle()
    groups.send("b", -1)
    groups.poll("a")
    assert len(groups.active("a")) == 4 and len(groups.group().target("a").active["0"]) == 2
    assert (warmup(groups, "c"), groups.state()) == ([], "Reconciling")
    return groups


def test_a_new_coordinator_goes_on_where_the_one_before_was() -> None:
    """What members report and what they move to is not in the log: the two would wait for each other for ever."""
    groups = half_way()
    groups.driver.restart()
    groups.settle()
    assert len(groups.active("a")) == 4 and len(warmup(groups, "c")) == 1 and groups.state() == "Stable"


def test_members_move_to_something_else_where_a_new_coordinator_decides_so() -> None:
    groups = half_way()
    groups.driver.restart()
    groups.configure(num_warmup_replicas="0")
    epoch = groups.group().epoch
    groups.settle()
    assert len(groups.active("a")) == len(groups.active("c")) == 2 and groups.state() == "Stable"
    assert groups.group().epoch == epoch + 1


def test_a_member_that_gives_up_a_copy_shows_that_members_warm_up() -> None:
    """It is all that a new coordinator finds of that."""
    copy = HeldTasks(warmup={"0": frozenset({1})})
    members = {
        "a": StreamsMember("a", epoch=1, process_id="p", assigned=HeldTasks({"0": {0: 1, 1: 1}})),
        "b": StreamsMember("b", epoch=1, process_id="q", state=MemberState.UNREVOKED_TASKS, revoking=copy),
    }
    targets = {"a": MemberTasks({"0": frozenset({1})}), "b": MemberTasks({"0": frozenset({0})})}
    found = refine(members, targets, {}, {"0"}, Limits(2, 10), 2)
    assert found["a"] == MemberTasks({"0": frozenset({0, 1})})
    assert found["b"] == MemberTasks(warmup={"0": frozenset({0})})
