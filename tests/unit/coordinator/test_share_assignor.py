"""The assignor "simple": what KIP-932 promises of it, on examples and for many groups."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

import pytest

from ottla.coordinator.share.assignor import Assignment, assign

A, B = UUID(int=1), UUID(int=2)


def test_with_enough_partitions_each_has_one_member() -> None:
    assert assign({"x": [A], "y": [A]}, {A: range(3)}, {}) == {"x": [(A, 0), (A, 2)], "y": [(A, 1)]}


def test_with_more_members_than_partitions_each_member_has_one() -> None:
    assert assign({name: [A] for name in "vwxyz"}, {A: range(2)}, {}) == {
        "v": [(A, 0), (A, 1)],
        "w": [(A, 0)],
        "x": [(A, 0)],
        "y": [(A, 1)],
        "z": [(A, 1)],
    }


def test_members_with_other_topics_share_each_topic_for_itself() -> None:
    partitions = {A: range(1), B: range(2)}
    assert assign({"x": [A, B], "y": [B]}, partitions, {}) == {"x": [(A, 0), (B, 0)], "y": [(B, 1)]}


def test_a_new_member_takes_no_more_than_its_part() -> None:
    before = assign({"x": [A], "y": [A]}, {A: range(4)}, {})
    after = assign({"x": [A], "y": [A], "z": [A]}, {A: range(4)}, before)
    assert [len(shared) for shared in after.values()] == [2, 1, 1]
    assert {*after["x"]} <= {*before["x"]}
    assert {*after["y"]} <= {*before["y"]}


def test_nothing_to_share() -> None:
    assert assign({}, {A: range(3)}, {}) == {}
    assert assign({"x": [A]}, {}, {"x": [(A, 0)]}) == {"x": []}
    assert assign({"x": []}, {A: range(3)}, {"x": [(A, 0)]}) == {"x": []}


@pytest.mark.parametrize("seed", range(100))
def test_groups_of_all_kinds(seed: int) -> None:
    rng = random.Random(seed)
    topics = [UUID(int=number) for number in range(rng.randint(1, 3))]
    partitions = {topic: range(rng.randint(0, 6)) for topic in topics}
    members = [f"m{number}" for number in range(rng.randint(1, 9))]
    alike = rng.random() < 0.5
    subscriptions = {member: [t for t in topics if alike or rng.random() < 0.7] for member in members}
    fresh = assign(subscriptions, partitions, {})
    readers = check(fresh, subscriptions, partitions)
    groups = [[topic] for topic in topics]
    if len({*map(tuple, subscriptions.values())}) == 1:
        groups = [subscriptions["m0"]] if subscriptions["m0"] else []
    for group in groups:
        there = [(topic, number) for topic in group for number in partitions[topic]]
        who = [member for member in members if group[0] in subscriptions[member]]
        if there and who:
            sharing = -(-len(who) // len(there))
            assert {readers[partition] for partition in there} == {sharing}
            sizes = [sum(topic in group for topic, _ in fresh[member]) for member in who]
            assert max(sizes) - min(sizes) <= 1
    assert assign(subscriptions, partitions, fresh) == fresh, "who has its part keeps it"
    held = {member: {(rng.choice(topics), rng.randint(0, 6)) for _ in range(rng.randint(0, 5))} for member in members}
    moved = assign(subscriptions, partitions, held)
    readers = check(moved, subscriptions, partitions)
    for topic in topics:
        if any(topic in subscribed for subscribed in subscriptions.values()):
            assert all(readers[topic, number] for number in partitions[topic]), "somebody reads each partition"


def check(
    assignment: Assignment, subscriptions: dict[str, list[UUID]], partitions: dict[UUID, range]
) -> Counter[tuple[UUID, int]]:
    """Only what there is, for who wants it, once; returns how many members each partition has."""
    assert assignment.keys() == subscriptions.keys()
    for member, shared in assignment.items():
        assert len({*shared}) == len(shared)
        assert all(topic in subscriptions[member] and number in partitions[topic] for topic, number in shared)
    return Counter(partition for shared in assignment.values() for partition in shared)
