"""What the checks of a streams group call broken, and what not: each rule with a description that breaks only it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.simulation.checks import tasks

ASKED = tasks.Asked((0, 1), 1, ("zone",))

Held = dict[str, tuple[int, ...]]


def held(of: Held) -> dict[str, Any]:
    return {
        f"{kind}_tasks": [{"subtopology_id": "0", "partitions": [*of[kind]]}] if kind in of else []
        for kind in tasks.KINDS
    }


def row(process: str, zone: str, has: Held, *, gets: Held | None = None, instance: str | None = None) -> dict[str, Any]:
    return {
        "member_id": f"{process}-{zone}",
        "process_id": process,
        "instance_id": instance,
        "client_tags": [{"key": "zone", "value": zone}],
        "assignment": held(has),
        "target_assignment": held(has if gets is None else gets),
    }


def group(*members: dict[str, Any], state: str = "Stable", epoch: int = 7, target: int = 7) -> dict[str, Any]:
    return {"group_state": state, "group_epoch": epoch, "assignment_epoch": target, "members": [*members]}


GOOD = group(
    row("p", "a", {"active": (0,), "standby": (1,)}, instance="i"),
    row("q", "b", {"active": (1,), "standby": (0,)}, instance="j"),
    row("r", "a", {}),
)


def problems(found: dict[str, Any], asked: tasks.Asked = ASKED) -> list[str]:
    return [*tasks.always(found), *tasks.target(found, asked), *tasks.settled(found, asked)]


def test_a_group_that_is_well() -> None:
    assert problems(GOOD) == []


def test_a_process_alone_has_no_standbys() -> None:
    assert problems(group(row("p", "a", {"active": (0, 1)}))) == []


def test_while_the_target_is_of_an_epoch_before_it_is_not_looked_at() -> None:
    behind = group(row("p", "a", {"active": (0,)}), row("q", "b", {}), target=6)
    assert [*tasks.always(behind), *tasks.target(behind, ASKED)] == []


P, Q = row("p", "a", {"active": (0,), "standby": (1,)}), row("q", "b", {"active": (1,), "standby": (0,)})
BROKEN = {
    "one member per instance id": group(row("p", "a", {}, instance="i"), row("q", "b", {}, instance="i")),
    "one active owner per task": group(P, row("q", "b", {"active": (0, 1)}, gets={"active": (1,), "standby": (0,)})),
    "a process has a task once": group(P, Q, row("p", "c", {"warmup": (0,)}, gets={})),
    "a target is of an epoch that was": group(P, Q, target=8),
    "every task has one active owner": group(P, row("q", "b", {"standby": (0,)})),
    "standbys are as many as asked": group(P, row("q", "b", {"active": (1,)})),
    "standbys are spread over tags": group(
        row("p", "a", {"active": (0,)}), row("q", "b", {"active": (1,)}), row("r", "a", {"standby": (0, 1)})
    ),
    "the group is Reconciling": group(P, Q, state="Reconciling"),
    "p-a has": group(row("p", "a", {"active": (0,)}, gets={"active": (0,), "standby": (1,)}), Q),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_named(rule: str) -> None:
    found = problems(BROKEN[rule])
    assert any(each.startswith(rule) for each in found), found


@pytest.mark.parametrize(("standby", "is_far"), [("qr", False), ("qs", True), ("sq", True), ("rs", True)])
def test_each_standby_is_as_far_as_can_be(standby: str, is_far: bool) -> None:
    """The active task is in zone a, q and r in b, s in c: two standbys leave no zone for a second one of b."""
    zones = {"p": "a", "q": "b", "r": "b", "s": "c"}
    kinds: dict[str, Held] = {"p": {"active": (0,)}, **{each: {"standby": (0,)} for each in standby}}
    found = group(*(row(name, zone, kinds.get(name, {})) for name, zone in zones.items()))
    assert (problems(found, tasks.Asked((0,), 2, ("zone",))) == []) == is_far
