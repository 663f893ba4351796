"""The assignors of the broker, by themselves; `tests/conformance/walks/test_assignor_walk.py` compares them with
Kafka's."""

from __future__ import annotations

from uuid import UUID

from ottla.coordinator.group.assignors import ASSIGNORS, Assignment, MemberSpec

A, B = UUID(int=1), UUID(int=2)


def spec(*topics: UUID, instance: str | None = None, **assigned: set[int]) -> MemberSpec:
    places = {{"a": A, "b": B}[name]: frozenset(numbers) for name, numbers in assigned.items()}
    return MemberSpec(instance, None, frozenset(topics), places)


def sizes(assignment: Assignment) -> list[int]:
    return [sum(map(len, mine.values())) for mine in assignment.values()]


def test_ranges_of_topics_with_as_many_partitions_are_with_the_same_members() -> None:
    members = {"y": spec(A, B), "x": spec(A, B)}
    assert ASSIGNORS["range"](members, {A: 3, B: 3}, True) == {
        "x": {A: {0, 1}, B: {0, 1}},
        "y": {A: {2}, B: {2}},
    }


def test_ranges_go_by_instance_id_first() -> None:
    members = {"a": spec(A), "z": spec(A, instance="1"), "y": spec(A, instance="2")}
    assert ASSIGNORS["range"](members, {A: 3}, True) == {"z": {A: {0}}, "y": {A: {1}}, "a": {A: {2}}}


def test_more_members_than_partitions() -> None:
    members = {"x": spec(A), "y": spec(A), "z": spec(A)}
    assert ASSIGNORS["range"](members, {A: 2}, True) == {"x": {A: {0}}, "y": {A: {1}}, "z": {}}
    assert ASSIGNORS["uniform"](members, {A: 2}, True) == {"x": {}, "y": {A: {0}}, "z": {A: {1}}}


def test_uniform_moves_no_more_than_it_must() -> None:
    members = {"x": spec(A, a={0, 1, 2, 3}), "y": spec(A)}
    assert ASSIGNORS["uniform"](members, {A: 5}, True) == {"x": {A: {0, 1, 2}}, "y": {A: {3, 4}}}
    assert ASSIGNORS["uniform"](members, {A: 4}, True) == {"x": {A: {0, 1}}, "y": {A: {2, 3}}}


def test_uniform_revokes_what_is_no_longer_subscribed_to() -> None:
    members = {"x": spec(B, a={0, 1}, b={0}), "y": spec(B)}
    assert ASSIGNORS["uniform"](members, {B: 2}, True) == {"x": {B: {0}}, "y": {B: {1}}}


def test_uniform_evens_out_members_with_other_topics() -> None:
    members = {"x": spec(A, B, a={0, 1, 2, 3}), "y": spec(B)}
    assert sizes(ASSIGNORS["uniform"](members, {A: 4, B: 4}, False)) == [4, 4]
    members = {"x": spec(A, B, a={0, 1}, b={0, 1, 2, 3}), "y": spec(B)}
    found = ASSIGNORS["uniform"](members, {A: 2, B: 4}, False)
    assert sizes(found) == [3, 3] and found["x"][A] == {0, 1}


def test_nobody_and_nothing() -> None:
    for assign in ASSIGNORS.values():
        for is_homogeneous in (True, False):
            assert assign({}, {A: 3}, is_homogeneous) == {}
            assert assign({"x": spec()}, {}, is_homogeneous) == {"x": {}}
            assert assign({"x": spec(A, a={0})}, {A: 1}, is_homogeneous) == {"x": {A: {0}}}
            assert assign({"x": spec(a={0})}, {}, is_homogeneous) == {"x": {}}


def test_a_member_is_the_same_whoever_else_is_there() -> None:
    """The order of a frozenset of ids does not matter."""
    members = {f"m{number}": spec(A, B) for number in range(7)}
    turned = {name: spec(B, A) for name in members}
    for assign in ASSIGNORS.values():
        assert assign(members, {A: 9, B: 4}, True) == assign(turned, {A: 9, B: 4}, True)
