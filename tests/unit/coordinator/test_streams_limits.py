"""Topologies of streams applications at their limits: how much work they are, and that less work finds the same."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.group.streams import topology as topologies
from ottla.coordinator.group.streams.topology import ITEMS_MAX, TASKS_MAX, TopologyStatus, configure
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.schemas.records import CopartitionGroup, StreamsGroupTopologyValue, Subtopology
from tests.unit.coordinator.streams_groups import subtopology

CALLS_PER_ITEM_MAX = 30


def in_rounds(
    subtopologies: tuple[Subtopology, ...], partitions_of: Callable[[str], int | None]
) -> dict[str, int] | None:
    """What Kafka's `RepartitionTopics` does, round by round; None where it finds no end."""
    repartition = [topic for each in subtopologies for topic in each.repartition_source_topics]
    found = {topic.name: topic.partitions for topic in repartition if topic.partitions}
    while True:
        is_open = has_found = False
        for each in subtopologies:
            for name in each.repartition_sink_topics:
                if name in found:
                    continue
                read = [found.get(topic.name) for topic in each.repartition_source_topics]
                read += [partitions_of(source) for source in each.source_topics]
                count = max((one for one in read if one is not None), default=None)
                is_open = is_open or count is None
                if count is not None:
                    found[name] = count
                    has_found = True
        if not is_open:
            return found if all(topic.name in found for topic in repartition) else None
        if not has_found:
            return None


def test_partitions_of_repartition_topics_are_found_as_in_rounds() -> None:
    rng = random.Random(29)
    outcomes = set()
    for _ in range(2000):
        size = rng.randint(1, 6)
        internal = [f"r{number}" for number in range(rng.randint(1, 6))]

        def some(names: list[str], most: int) -> list[str]:
            return rng.sample(names, rng.randint(0, min(most, len(names))))

        parts = tuple(
            subtopology(
                str(number),
                *some(["a", "b"], 1),
                reads=some(internal, 3),
                writes=some(internal, 3),
                read_partitions=rng.choice([0, 0, 0, 5]),
            )
            for number in range(size)
        )
        partitions = {"a": 3, "b": 7}
        expected = in_rounds(parts, partitions.get)
        try:
            found = topologies._Counts(StreamsGroupTopologyValue(0, parts), partitions.get)._repartitioned()
        except KafkaError as error:
            assert error.code is ErrorCode.streams_invalid_topology
            assert expected is None
        else:
            assert found == expected
        outcomes.add(expected is None)
    assert outcomes == {True, False}


def chain_backwards(size: int) -> tuple[Subtopology, ...]:
    """Each reads what the one behind it writes: a round finds one of them."""
    parts = [subtopology(f"{size:05}", "t", writes=[f"r{size}"])]
    parts += [subtopology(f"{n:05}", reads=[f"r{n + 1}"], writes=[f"r{n}"]) for n in range(size - 1, 0, -1)]
    parts.append(subtopology("00000", reads=["r1"]))
    return tuple(reversed(parts))


def copartitioned(size: int) -> tuple[Subtopology, ...]:
    """Many groups of joined repartition topics, each compared with all whose number is fixed."""
    names = [f"r{number}" for number in range(size)]
    reader = subtopology("1", reads=names, read_partitions=3)
    groups = tuple(CopartitionGroup((), (), (place,)) for place in range(size))
    return subtopology("0", "t", writes=names), reader.replaced(copartition_groups=groups)


SHAPES: dict[str, Callable[[], tuple[Subtopology, ...]]] = {
    "subtopologies": lambda: tuple(subtopology(f"{n:05}", "t") for n in range(ITEMS_MAX // 2)),
    "a chain": lambda: chain_backwards(ITEMS_MAX // 3),
    "sources": lambda: (subtopology("0", *(f"s{n}" for n in range(ITEMS_MAX - 1))),),
    "sources and sinks": lambda: (
        subtopology("0", "t", reads=[f"r{n}" for n in range(1000)], writes=[f"r{n}" for n in range(1000)]),
    ),
    "changelogs": lambda: (subtopology("0", "t", keeps=[f"c{n}" for n in range(ITEMS_MAX // 2 - 1)]),),
    "copartition groups": lambda: copartitioned(ITEMS_MAX // 5),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_of_a_topology_takes_more_than_its_size(shape: str) -> None:
    value = StreamsGroupTopologyValue(0, SHAPES[shape]())
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        configured = configure(value, {"t": 3, **{f"s{n}": 1 for n in range(ITEMS_MAX)}}.get)
    finally:
        sys.setprofile(None)
    assert configured.subtopologies is not None
    assert calls <= CALLS_PER_ITEM_MAX * ITEMS_MAX, calls


def test_more_tasks_than_a_group_may_have_are_not_assigned() -> None:
    parts = tuple(subtopology(str(number), "t") for number in range(11))
    fits = configure(StreamsGroupTopologyValue(0, parts), {"t": TASKS_MAX // 11}.get)
    assert fits.is_ready
    beyond = configure(StreamsGroupTopologyValue(0, parts), {"t": TASKS_MAX // 10}.get)
    assert beyond.status is TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS and beyond.subtopologies is None
    assert str(TASKS_MAX) in beyond.detail
