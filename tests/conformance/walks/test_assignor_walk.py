"""The same groups for Ottla's assignors and for Kafka's own classes, from a seed: members come, go and subscribe, and
topics grow. `range` gives the same; `uniform` is as even and keeps as much (which ones depends on Java's hash maps)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from uuid import UUID

import pytest

from ottla.coordinator.group.assignors import ASSIGNORS, Assignment, MemberSpec
from tests.conformance.line_program import Lines

WALKS = 60
STEPS = 25
LEAST = {"same": 400, "mixed": 400, "kept": 5_000, "moved": 500, "static": 300, "identical": 300}
"""Minimum counts of events, or the walks prove little."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Lines]:
    started = Lines("org.apache.kafka.coordinator.group.assignor.AssignorLines", "4.4")
    yield started
    started.close()


class Group:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = self.random.choice(["range", "uniform"])
        self.is_mixed = self.random.random() < 0.5
        self.counts = {UUID(int=number): self.random.randint(1, 12) for number in range(self.random.randint(1, 5))}
        self.specs: dict[str, MemberSpec] = {}
        self.joined = 0
        self.mine = self.subscription()

    def subscription(self) -> frozenset[UUID]:
        return frozenset(topic for topic in self.counts if self.random.random() < 0.7)

    def step(self) -> None:
        """Something happens to the group."""
        match self.random.choices(["join", "leave", "subscribe", "grow"], [6, 3, 2, 1])[0]:
            case "join":
                self.joined += 1
                instance = f"i{self.joined}" if self.random.random() < 0.3 else None
                topics = self.subscription() if self.is_mixed else self.mine
                name = f"{self.random.getrandbits(32):x}-{self.joined}"
                self.specs[name] = MemberSpec(instance, None, topics, {})
            case "leave" if self.specs:
                del self.specs[self.random.choice([*self.specs])]
            case "subscribe" if self.specs:
                if self.is_mixed:
                    name = self.random.choice([*self.specs])
                    self.specs[name] = reading(self.specs[name], self.subscription())
                else:
                    self.mine = self.subscription()
                    self.specs = {name: reading(spec, self.mine) for name, spec in self.specs.items()}
            case _:
                self.counts[self.random.choice([*self.counts])] += self.random.randint(1, 5)

    def line(self) -> str:
        members = [
            "/".join(
                (name, spec.instance_id or "", ",".join(str(each.int) for each in spec.topics), places(spec.assigned))
            )
            for name, spec in self.specs.items()
        ]
        kind = "mixed" if self.is_mixed else "same"
        return " ".join([self.name, kind, ",".join(map(str, self.counts.values())), *members])


def places(assigned: Mapping[UUID, frozenset[int] | set[int]]) -> str:
    return ",".join(f"{topic.int}.{number}" for topic in sorted(assigned) for number in sorted(assigned[topic]))


def read(answer: str) -> Assignment:
    """In the order in which Kafka went through the members."""
    found: Assignment = {}
    for each in answer.split():
        name, _, listed = each.partition("/")
        mine = found.setdefault(name, {})
        for place in filter(None, listed.split(",")):
            topic, _, number = place.partition(".")
            mine.setdefault(UUID(int=int(topic)), set()).add(int(number))
    return found


def sizes(assignment: Assignment) -> list[int]:
    return sorted(sum(map(len, mine.values())) for mine in assignment.values())


def reading(spec: MemberSpec, topics: frozenset[UUID]) -> MemberSpec:
    return MemberSpec(spec.instance_id, spec.rack_id, topics, spec.assigned)


def kept(specs: Mapping[str, MemberSpec], assignment: Assignment) -> int:
    return sum(
        len(numbers & assignment[name].get(topic, set()))
        for name, spec in specs.items()
        for topic, numbers in spec.assigned.items()
    )


def check_whole(group: Group, assignment: Assignment) -> None:
    """Each partition of a topic that somebody reads has one member, which subscribes to it."""
    given = Counter(
        (topic, number) for mine in assignment.values() for topic, numbers in mine.items() for number in numbers
    )
    wanted = {topic for spec in group.specs.values() for topic in spec.topics}
    assert given == Counter((topic, number) for topic in wanted for number in range(group.counts[topic]))
    assert all({*mine} <= group.specs[name].topics for name, mine in assignment.items())


def test_assignors_give_what_kafkas_give(kafka: Lines) -> None:
    done: Counter[str] = Counter()
    for seed in range(WALKS):
        group = Group(seed)
        for _ in range(STEPS):
            group.step()
            if not group.specs:
                continue
            theirs = read(kafka.ask(group.line())[0])
            group.specs = {name: group.specs[name] for name in theirs}
            ours = ASSIGNORS[group.name](group.specs, group.counts, not group.is_mixed)
            check_whole(group, ours)
            shown = f"seed {seed}: {group.line()}"
            if group.name == "range":
                assert ours == theirs, shown
            else:
                assert sizes(ours) == sizes(theirs), shown
                done["kept by Kafka's"] += kept(group.specs, theirs)
                assert group.is_mixed or kept(group.specs, ours) == kept(group.specs, theirs), shown
                done["kept"] += kept(group.specs, ours)
                done["moved"] += sum(sizes(ours)) - kept(group.specs, ours)
                done["identical"] += ours == theirs
            done["mixed" if group.is_mixed else "same"] += 1
            done["static"] += any(spec.instance_id for spec in group.specs.values())
            for name, spec in group.specs.items():
                spec.assigned = {topic: frozenset(numbers) for topic, numbers in ours[name].items()}
    assert all(done[what] >= least for what, least in LEAST.items()), done
    assert done["kept"] >= done["kept by Kafka's"]
