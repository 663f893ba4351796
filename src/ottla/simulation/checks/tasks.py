"""What a description of a streams group must say, whatever happens to the group: pure functions of one answer to
StreamsGroupDescribe."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

KINDS = ("active", "standby", "warmup")

Row = Mapping[str, Any]
"""A row of an answer: a group, a member, an assignment."""


class Asked(NamedTuple):
    """What the application asks of the coordinator."""

    tasks: Collection[int]
    replicas: int
    tags: Sequence[str] = ()


def numbers(assignment: Row, kind: str) -> list[int]:
    """Tasks of one kind in an assignment, or in the answer to a heartbeat."""
    return sorted(number for row in assignment[f"{kind}_tasks"] or () for number in row["partitions"])


def of(assignment: Row) -> tuple[list[int], ...]:
    active, standby, warmup = (numbers(assignment, kind) for kind in KINDS)
    return active, standby, warmup


def always(group: Row) -> Iterator[str]:
    """What is wrong at any time: in the tasks that members have, and in who they are."""
    instances = [each["instance_id"] for each in group["members"] if each["instance_id"] is not None]
    if len({*instances}) < len(instances):
        yield f"one member per instance id: {sorted(instances)}"
    for number, having in _holders(group, "assignment").items():
        runs = [member["member_id"] for member, kind in having if kind == "active"]
        if len(runs) > 1:
            yield f"one active owner per task: {number} is active on {runs}"
        yield from _once_per_process(number, having, "assignment")
    if group["assignment_epoch"] > group["group_epoch"]:
        yield f"a target is of an epoch that was: {group['assignment_epoch']} in epoch {group['group_epoch']}"


def target(group: Row, asked: Asked) -> Iterator[str]:
    """What is wrong with a target assignment that is of the group's epoch."""
    holders = _holders(group, "target_assignment")
    active = {number for number, having in holders.items() if any(kind == "active" for _, kind in having)}
    if not active or group["assignment_epoch"] != group["group_epoch"]:
        return  # the topics are not there yet, or the assignor has not run yet
    processes = {each["process_id"]: each for each in group["members"]}
    for number in asked.tasks:
        having = holders.get(number, [])
        runs = [member for member, kind in having if kind == "active"]
        standbys = [member for member, kind in having if kind == "standby"]
        if len(runs) != 1:
            yield f"every task has one active owner: {number} has {len(runs)}"
            continue
        yield from _once_per_process(number, having, "target_assignment")
        wanted = min(asked.replicas, len(processes) - 1)
        if len(standbys) != wanted:
            yield f"standbys are as many as asked: {number} has {len(standbys)}, not {wanted}"
        elif asked.tags and not _is_spread(runs[0], standbys, [*processes.values()], asked.tags):
            text = [_values(each, asked.tags) for each in (runs[0], *standbys)]
            yield f"standbys are spread over tags: {number} is at {text}, of {sorted(map(str, processes))}"


def settled(group: Row, asked: Asked) -> Iterator[str]:
    """What is not yet as it has to be once nothing changes any more."""
    if group["group_state"] != "Stable":
        yield f"the group is {group['group_state']}"
    if group["assignment_epoch"] != group["group_epoch"]:
        yield f"the target is of {group['assignment_epoch']}, not of {group['group_epoch']}"
    if {*_holders(group, "target_assignment")} != {*asked.tasks}:
        yield "tasks have no target"
    for each in group["members"]:
        if of(each["assignment"]) != of(each["target_assignment"]):
            has, gets = of(each["assignment"]), of(each["target_assignment"])
            yield f"{each['member_id']} has {has}, and its target is {gets}"


def _holders(group: Row, what: str) -> dict[int, list[tuple[Row, str]]]:
    found: dict[int, list[tuple[Row, str]]] = {}
    for member in group["members"]:
        for kind in KINDS:
            for number in numbers(member[what], kind):
                found.setdefault(number, []).append((member, kind))
    return found


def _once_per_process(number: int, having: Sequence[tuple[Row, str]], what: str) -> Iterator[str]:
    """Members of a process share its state stores."""
    processes = [member["process_id"] for member, _ in having]
    if len({*processes}) < len(processes):
        kinds = [(member["member_id"], member["process_id"], kind) for member, kind in having]
        yield f"a process has a task once: {number} is, by {what}, at {kinds}"


def _is_spread(active: Row, standbys: Sequence[Row], processes: Sequence[Row], tags: Sequence[str]) -> bool:
    """Whether the standbys were put, in some order, each on a process that is as far as any from those before."""
    for order in permutations(standbys):
        placed = [active]
        for each in order:
            taken = {row["process_id"] for row in placed}
            farthest = max(_distance(row, placed, tags) for row in processes if row["process_id"] not in taken)
            if _distance(each, placed, tags) < farthest:
                break
            placed.append(each)
        else:
            return True
    return False


def _distance(row: Row, others: Sequence[Row], tags: Sequence[str]) -> int:
    """How many tags of it have a value that none of the others has."""
    own, taken = _values(row, tags), [_values(each, tags) for each in others]
    return sum(own[tag] is not None and all(own[tag] != each[tag] for each in taken) for tag in tags)


def _values(row: Row, tags: Sequence[str]) -> dict[str, str | None]:
    found = {each["key"]: each["value"] for each in row["client_tags"]}
    return {tag: found.get(tag) for tag in tags}
