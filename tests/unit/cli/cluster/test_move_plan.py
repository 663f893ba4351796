"""Plans of `ottla cluster balance`, `cluster drain` and `topic replicate`: examples, and what holds of every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.move_board import Broker, Partition
from ottla.client.move_plan import (
    Move,
    PlanImpossible,
    plan_balance,
    plan_drain,
    plan_replicate,
    summary,
)

GIB = 1 << 30
THREE = [Broker(1), Broker(2), Broker(3)]


def applied(partitions: Sequence[Partition], moves: Sequence[Move]) -> dict[tuple[str, int], tuple[int, ...]]:
    return {each.key: each.replicas for each in partitions} | {each.partition.key: each.after for each in moves}


def test_a_new_broker_is_given_its_share() -> None:
    partitions = [Partition("t", n, (1 + n % 2,), GIB) for n in range(12)]
    moves = plan_balance(THREE, partitions)
    held = Counter(replicas[0] for replicas in applied(partitions, moves).values())
    assert held == {1: 4, 2: 4, 3: 4}
    assert len(moves) == 4, "no more than has to be"
    assert sum(each.bytes for each in moves) == 4 * GIB


def test_partitions_are_even_to_one_and_bytes_as_far_as_that_allows() -> None:
    partitions = [Partition("large", 0, (1,), 8 * GIB), *(Partition("small", n, (1,), GIB) for n in range(8))]
    after = applied(partitions, plan_balance([Broker(1), Broker(2)], partitions))
    beside = [n for n in range(8) if after["small", n] == after["large", 0]]
    assert len(beside) == 3, "four would be as even in number, and less so in bytes"


def test_what_is_written_to_counts_where_nothing_is_kept() -> None:
    partitions = [Partition("t", n, (1,), 0, 1e6 if n < 2 else 0.0) for n in range(4)]
    after = applied(partitions, plan_balance([Broker(1), Broker(2)], partitions))
    assert sorted(after["t", n][0] for n in (0, 1)) == [1, 2]


def test_leaders_are_evened_out_without_copying() -> None:
    partitions = [Partition("t", n, (1, 2, 3), GIB) for n in range(6)]
    moves = plan_balance(THREE, partitions)
    assert Counter(replicas[0] for replicas in applied(partitions, moves).values()) == {1: 2, 2: 2, 3: 2}
    assert sum(each.bytes for each in moves) == 0


def test_what_is_even_stays() -> None:
    partitions = [Partition("t", n, (1 + n % 3, 1 + (n + 1) % 3), GIB) for n in range(6)]
    assert plan_balance(THREE, partitions) == []
    assert plan_balance(THREE[:1], [Partition("t", 0, (1,))]) == []
    assert plan_balance(THREE, []) == []


def test_a_broker_is_emptied() -> None:
    partitions = [Partition("t", n, (1 + n % 3, 1 + (n + 1) % 3), GIB) for n in range(6)]
    after = applied(partitions, plan_drain(THREE, partitions, {3}))
    assert all(sorted(replicas) == [1, 2] for replicas in after.values())
    assert all(after["t", n] == (1, 2) for n in (0, 3)), "nothing of these is on the broker"
    assert Counter(replicas[0] for replicas in after.values()) == {1: 3, 2: 3}


def test_too_few_brokers_are_left() -> None:
    partitions = [Partition("orders", 0, (1, 2, 3))]
    with pytest.raises(PlanImpossible, match=r"'orders' has 3 copies.*add --fewer-copies") as impossible:
        plan_drain(THREE, partitions, {3})
    assert impossible.value.command == "ottla topic replicate orders --factor 2"
    assert plan_drain(THREE, partitions, {3}, fewer_copies=True)[0].after == (1, 2)
    with pytest.raises(PlanImpossible, match="no broker would remain"):
        plan_drain(THREE[:1], partitions, {1})


def test_the_only_copy_is_not_given_up() -> None:
    with pytest.raises(PlanImpossible):
        plan_drain([Broker(1)], [Partition("t", 0, (2,))], {1, 2}, fewer_copies=True)


def test_more_copies() -> None:
    partitions = [Partition("t", n, (1,), GIB) for n in range(3)] + [Partition("other", 0, (1,), GIB)]
    moves = plan_replicate(THREE, partitions, {"t"}, 3)
    after = applied(partitions, moves)
    assert all(sorted(after["t", n]) == [1, 2, 3] for n in range(3))
    assert len({after["t", n][0] for n in range(3)}) == 3, "each broker leads one"
    assert after["other", 0] == (1,)
    with pytest.raises(PlanImpossible, match="4 copies need 4 brokers, but there are 3"):
        plan_replicate(THREE, partitions, {"t"}, 4)


def test_fewer_copies_keep_the_leader() -> None:
    partitions = [Partition("t", n, (2, 1, 3), GIB) for n in range(3)]
    for move in plan_replicate(THREE, partitions, {"t"}, 1):
        assert move.after == (2,)
        assert move.after == (2,) and move.adds == () and move.bytes == 0


def test_racks_are_kept_apart() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b"), Broker(5, "c")]
    partitions = [Partition("t", n, (1,), GIB) for n in range(10)]
    moves = plan_replicate(brokers, partitions, {"t"}, 3)
    rack = {each.id: each.rack for each in brokers}
    assert all({rack[broker] for broker in each.after} == {"a", "b", "c"} for each in moves)
    assert len(moves) == 10


def test_the_summary_adds_up() -> None:
    partitions = [Partition("t", n, (1,), 10) for n in range(4)]
    rows = summary(THREE[:2], partitions, plan_balance(THREE[:2], partitions))
    assert rows[0] == {
        "broker": 1,
        "replicas_before": 4,
        "replicas_after": 2,
        "leads_before": 4,
        "leads_after": 2,
        "bytes_before": 40,
        "bytes_after": 20,
    }
    assert rows[1]["bytes_after"] == 20 and rows[1]["bytes_before"] == 0


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Broker], list[Partition]]:
    count = draw(st.integers(1, 7))
    racks = draw(st.sampled_from([[None], ["a", "b"], ["a", "b", "c"]]))
    brokers = [Broker(number, draw(st.sampled_from(racks))) for number in range(1, count + 1)]
    partitions = []
    for number in range(draw(st.integers(0, 15))):
        copies = draw(st.integers(1, count))
        replicas = draw(st.permutations(range(1, count + 1)))[:copies]
        size, rate = draw(st.integers(0, 10**9)), draw(st.floats(0, 1e6))
        partitions.append(Partition(f"t{number % 3}", number, tuple(replicas), size, rate))
    return brokers, partitions


def spread(brokers: Sequence[Broker], replicas: Sequence[int]) -> int:
    racks = {each.id: each.rack for each in brokers}
    return len({racks[each] or each for each in replicas})


def of_brokers(
    brokers: Sequence[Broker], partitions: Sequence[Partition], replicas: dict[tuple[str, int], tuple[int, ...]]
) -> dict[str, list[int]]:
    """How much each broker has of what is kept even."""
    found = {what: dict.fromkeys((each.id for each in brokers), 0) for what in ("replicas", "bytes", "leaders")}
    for each in partitions:
        for place, broker in enumerate(replicas[each.key]):
            if broker in found["bytes"]:
                found["replicas"][broker] += 1
                found["bytes"][broker] += each.bytes
                found["leaders"][broker] += place == 0
    return {what: list(each.values()) for what, each in found.items()}


def widths(*cluster: Any) -> dict[str, int]:
    """Between the broker with the most and that with the least."""
    return {what: max(each) - min(each) for what, each in of_brokers(*cluster).items()}


def leader_could_go(brokers: Sequence[Broker], replicas: Iterable[tuple[int, ...]]) -> bool:
    """Whether some change of leaders, by way of any brokers, would make a broker lead less that leads two more than
    another: by walking from each broker to those that its leaders could go to."""
    ids = {each.id for each in brokers}
    leads = Counter(dict.fromkeys(ids, 0))
    leads.update(each[0] for each in replicas if each[0] in ids)
    ways = {(each[0], other) for each in replicas for other in each[1:] if {each[0], other} <= ids}
    for start in ids:
        reached = {start}
        while more := {b for a, b in ways if a in reached} - reached:
            reached |= more
        if any(leads[start] - leads[each] >= 2 for each in reached):
            return True
    return False


@settings(max_examples=200, deadline=None)
@given(clusters(), st.sets(st.integers(1, 7), max_size=2))
def test_no_plan_makes_anything_less_even(cluster: tuple[list[Broker], list[Partition]], away: set[int]) -> None:
    """Replicas, bytes and leaders of the brokers that are there; others may hold replicas too. Leaders are as even as
    the places of the replicas allow."""
    brokers, partitions = cluster
    brokers = [each for each in brokers if each.id not in away]
    if not brokers:
        return
    after = applied(partitions, plan_balance(brokers, partitions))
    before, then = widths(brokers, partitions, applied(partitions, [])), widths(brokers, partitions, after)
    assert all(then[what] <= before[what] for what in before), (before, then)
    assert len(brokers) < 2 or not leader_could_go(brokers, list(after.values()))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(0, 60), st.randoms(use_true_random=False))
def test_partitions_of_one_size_are_even_to_one(count: int, copies: int, partitions: int, random: Random) -> None:
    """However they were placed: replicas, leaders, and bytes to one partition."""
    brokers = [Broker(number) for number in range(1, count + 1)]
    some = random.sample(range(1, count + 1), random.randint(min(copies, count), count))
    made = [Partition("t", n, tuple(random.sample(some, min(copies, count))), GIB) for n in range(partitions)]
    then = widths(brokers, made, applied(made, plan_balance(brokers, made)))
    assert then["replicas"] <= 1 and then["leaders"] <= 1 and then["bytes"] <= GIB, then


@settings(max_examples=150, deadline=None, derandomize=True)
@given(clusters(), st.integers(1, 7), st.integers(1, 7))
def test_what_has_to_be_moved_makes_nothing_less_even(
    cluster: tuple[list[Broker], list[Partition]], leaving: int, factor: int
) -> None:
    """Leaders of the brokers that stay: as even as what is moved allows. A greedy plan does not always find the most
    even places of what it has to move, so that these are fixed cases."""
    brokers, partitions = cluster
    staying = [each for each in brokers if each.id != leaving]
    try:
        plans = [(staying, plan_drain(brokers, partitions, {leaving}, fewer_copies=True))]
    except PlanImpossible:
        plans = []
    if factor <= len(brokers):
        plans.append((brokers, plan_replicate(brokers, partitions, {"t1"}, factor)))
    for there, moves in plans:
        before = widths(there, partitions, applied(partitions, []))
        then = widths(there, partitions, applied(partitions, moves))
        assert then["leaders"] <= max(1, before["leaders"]), (before, then)


def test_leaders_that_are_even_stay_whatever_a_partition_holds() -> None:
    """56 partitions with three copies, and some kilobytes in one of them; then a node joins."""
    partitions = [Partition("t", n, tuple(1 + (n + k) % 3 for k in range(3)), 9000 if n == 7 else 0) for n in range(56)]
    assert plan_balance(THREE, partitions) == []
    four = [*THREE, Broker(4)]
    then = of_brokers(four, partitions, applied(partitions, plan_balance(four, partitions)))
    assert then["leaders"] == [14] * 4 and then["replicas"] == [42] * 4


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_balancing(cluster: tuple[list[Broker], list[Partition]]) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions)
    for each in moves:
        assert len(set(each.after)) == len(each.after) == len(each.partition.replicas)
        assert spread(brokers, each.after) >= spread(brokers, each.partition.replicas)
    assert moves == plan_balance(brokers, list(reversed(partitions))), "the order of what was found means nothing"
    done = [
        Partition(each.topic, each.number, applied(partitions, moves)[each.key], each.bytes, each.rate)
        for each in partitions
    ]
    assert plan_balance(brokers, done) == [], "once is enough"


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(1, 7), st.booleans())
def test_draining(cluster: tuple[list[Broker], list[Partition]], leaving: int, fewer_copies: bool) -> None:
    brokers, partitions = cluster
    try:
        moves = plan_drain(brokers, partitions, {leaving}, fewer_copies=fewer_copies)
    except PlanImpossible:
        others = [each for each in brokers if each.id != leaving]
        assert not others or (not fewer_copies and any(len(each.replicas) > len(others) for each in partitions))
        return
    after = applied(partitions, moves)
    for each in partitions:
        assert leaving not in after[each.key] and len(set(after[each.key])) == len(after[each.key]) > 0
        assert len(after[each.key]) == len(each.replicas) or fewer_copies
        if leaving not in each.replicas:
            assert after[each.key] == each.replicas


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(1, 7))
def test_replicating(cluster: tuple[list[Broker], list[Partition]], factor: int) -> None:
    brokers, partitions = cluster
    if factor > len(brokers):
        with pytest.raises(PlanImpossible):
            plan_replicate(brokers, partitions, {"t1"}, factor)
        return
    after = applied(partitions, plan_replicate(brokers, partitions, {"t1"}, factor))
    for each in partitions:
        if each.topic != "t1":
            assert after[each.key] == each.replicas
            continue
        assert len(set(after[each.key])) == len(after[each.key]) == factor
        if factor < len(each.replicas):
            assert set(after[each.key]) <= set(each.replicas) and each.replicas[0] in after[each.key]
        else:
            assert set(after[each.key]) >= set(each.replicas)
