"""Members of streams groups that missed an answer, or come back in another process. Both are better than Kafka 4.4,
beside which `tests/conformance/walks/test_streams_group_walk.py` holds the rest."""

from __future__ import annotations

from collections import Counter

from ottla.protocol.schemas.records import StreamsGroupTopologyValue
from tests.unit.coordinator.streams_groups import SIMPLE, Groups, named, subtopology
from tests.unit.coordinator.test_streams_groups import assert_reloads

KEEPS = StreamsGroupTopologyValue(0, (subtopology("0", "t", keeps=["c"]),))
NONE = (), (), ()


def test_a_missed_answer_is_repeated() -> None:
    """It reports what it has, as clients do after an error, by the epoch that it knows or the newest."""
    groups = Groups()
    groups.create(t=2)
    joined = groups.join("a", SIMPLE)
    groups.join("b", SIMPLE)
    groups.settle()
    assert len(groups.active("a")) == len(groups.active("b")) == 1
    (number,) = groups.group().members["a"].assigned.active["0"]
    for epoch in (groups.group().members["a"].previous_epoch, groups.group().members["a"].epoch):
        told = groups.send("a", epoch, owned=NONE)
        assert [(each["subtopology_id"], each["partitions"]) for each in told["active_tasks"]] == [("0", [number])]
        assert told["standby_tasks"] == told["warmup_tasks"] == []
    assert joined["member_epoch"] <= told["member_epoch"]
    assert groups.poll("a")["active_tasks"] is None  # it has them now
    assert groups.poll("a", owned=None)["active_tasks"] is None


def test_a_static_member_in_another_process_gets_no_task_that_this_one_has() -> None:
    groups = Groups({"group.streams.num.standby.replicas": 1})
    groups.create(t=2, c=2)
    groups.join("a", KEEPS, instance_id="i", process_id="p")
    groups.join("b", KEEPS, process_id="q")
    groups.settle()
    member = groups.group().members["b"]
    beside = named(member.assigned.standby)
    assert beside and beside == groups.active("a")
    assert groups.send("a", -2, instance_id="i")["member_epoch"] == -2
    assert groups.join("a2", KEEPS, instance_id="i", process_id="q")["active_tasks"] == []
    has = groups.group().members["a2"].assigned
    assert not has.active and not has.standby
    groups.settle()
    active = sorted([*groups.active("a2"), *groups.active("b")])
    assert active == ["0_0", "0_1"] and not groups.group().members["b"].assigned.standby
    assert_reloads(groups)


def test_members_that_come_and_go_leave_what_their_process_has() -> None:
    """Between two records of a static member that comes back it is in the new process with its old tasks. Another
    member of that process keeps its copies all the same."""
    groups = Groups({"group.streams.num.standby.replicas": 2})
    groups.create(t=1, c=1)
    for member_id in "abc":
        groups.join(member_id, KEEPS, instance_id=f"i-{member_id}", process_id=f"p-{member_id}")
    groups.settle()
    beside, gone = (each for each in "abc" if not groups.active(each))
    assert_owners(groups)
    for member_id in (beside, gone):
        assert groups.send(member_id, -2, instance_id=f"i-{member_id}")["member_epoch"] == -2
    groups.join("back", KEEPS, instance_id=f"i-{gone}", process_id=f"p-{beside}")
    assert named(groups.group().members[beside].assigned.standby) == ["0_0"]
    assert_owners(groups)


def assert_owners(groups: Groups) -> None:
    """The processes that have a copy of each task, counted again."""
    copies: dict[tuple[str, int], Counter[str]] = {}
    for member in groups.group().members.values():
        for name, numbers in member.assigned.standby.items():
            for number in numbers:
                copies.setdefault((name, number), Counter())[member.process_id] += 1
    assert copies and groups.group().standby_processes == copies
