"""Ottla's task assignor and topologies beside the classes of Kafka 4.4, from a seed (KIP-1071)."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from ottla.coordinator.group.streams.assignor import MemberTasks, SubtopologySize, Task, TaskMember, Tasks, assign_tasks
from ottla.coordinator.group.streams.topology import ConfiguredTopology, InternalTopic, configure
from ottla.errors import KafkaError
from ottla.protocol.internal.group_values import encode_group_value
from ottla.protocol.schemas.records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from tests.conformance.line_program import Lines

WALKS = 40
STEPS = 25
LEAST = {"standbys": 300, "kept": 8_000, "moved": 400, "same": 300, "shared process": 300}
"""Minimum counts of events, or the walks prove little."""
TOPOLOGIES = 3_000
LEAST_TOPOLOGIES = {
    "READY": 40, "MISSING_SOURCE_TOPICS": 100, "MISSING_INTERNAL_TOPICS": 200, "INCORRECTLY_PARTITIONED_TOPICS": 60,
    "thrown StreamsInvalidTopologyException": 60, "thrown IndexOutOfBoundsException": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def kafka() -> Iterator[Lines]:
    started = Lines("org.apache.kafka.coordinator.group.streams.StreamsLines", "4.4")
    yield started
    started.close()


class Group:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        count = self.random.randint(1, 4)
        self.sizes = {
            str(each): SubtopologySize(self.random.randint(1, 9), self.random.random() < 0.6) for each in range(count)
        }
        self.standbys = self.random.choice([0, 0, 1, 1, 2])
        self.members: dict[str, TaskMember] = {}
        self.joined = 0

    def step(self) -> None:
        match self.random.choices(["join", "leave", "grow", "standbys"], [6, 4, 1, 1])[0]:
            case "join":
                self.joined += 1
                process = f"p{self.random.randint(1, 5)}"
                name = f"{self.random.getrandbits(32):x}-{self.joined}"
                self.members[name] = TaskMember(process, None, None, {}, MemberTasks())
            case "leave" if self.members:
                del self.members[self.random.choice([*self.members])]
            case "grow":
                name = self.random.choice([*self.sizes])
                self.sizes[name] = self.sizes[name]._replace(tasks=self.sizes[name].tasks + self.random.randint(1, 3))
            case "standbys":
                self.standbys = self.random.choice([0, 1, 2])

    def line(self) -> str:
        sizes = ",".join(f"{name}:{size.tasks}:{int(size.is_stateful)}" for name, size in self.sizes.items())
        members = [
            "/".join((name, each.process_id, text(each.tasks.active), text(each.tasks.standby)))
            for name, each in self.members.items()
        ]
        return " ".join(["assign", str(self.standbys), sizes, *members])


def text(tasks: Tasks) -> str:
    return ",".join(f"{name}.{number}" for name, number in sorted(listed(tasks)))


def listed(tasks: Tasks) -> list[Task]:
    return [(name, number) for name, numbers in tasks.items() for number in numbers]


def read(answer: str) -> dict[str, MemberTasks]:
    """In the order in which Kafka went through the members."""
    found: dict[str, MemberTasks] = {}
    for each in answer.split():
        name, active, standby = each.split("/")
        found[name] = MemberTasks(_tasks(active), _tasks(standby))
    return found


def _tasks(shown: str) -> Tasks:
    found: dict[str, set[int]] = {}
    for each in filter(None, shown.split(",")):
        name, _, number = each.partition(".")
        found.setdefault(name, set()).add(int(number))
    return {name: frozenset(numbers) for name, numbers in found.items()}


def sizes(assigned: Mapping[str, MemberTasks]) -> list[int]:
    """Active tasks of the members."""
    return sorted(len(listed(each.active)) for each in assigned.values())


def kept(group: Group, assigned: Mapping[str, MemberTasks]) -> set[tuple[str, Task]]:
    """Active tasks that stay where they were."""
    return {
        (name, task)
        for name, member in group.members.items()
        for task in {*listed(member.tasks.active)} & {*listed(assigned[name].active)}
    }


def check_whole(group: Group, assigned: Mapping[str, MemberTasks], shown: str) -> int:
    """Each task is active once; a process never has a task twice. How many standbys there are."""
    wanted = Counter((name, number) for name, size in group.sizes.items() for number in range(size.tasks))
    assert Counter(task for tasks in assigned.values() for task in listed(tasks.active)) == wanted, shown
    given = Counter(
        (group.members[name].process_id, task)
        for name, tasks in assigned.items()
        for task in [*listed(tasks.active), *listed(tasks.standby)]
    )
    assert max(given.values()) == 1, shown
    standbys = Counter(task for tasks in assigned.values() for task in listed(tasks.standby))
    assert all(group.sizes[name].is_stateful and count <= group.standbys for (name, _), count in standbys.items()), (
        shown
    )
    return standbys.total()


def test_tasks_are_dealt_as_by_kafka(kafka: Lines) -> None:
    """Which member gets a new one depends on the order of Java's hash maps; how many it gets, and keeps, hardly."""
    done: Counter[str] = Counter()
    for seed in range(WALKS):
        group = Group(seed)
        for _ in range(STEPS):
            group.step()
            if not group.members:
                continue
            shown = f"seed {seed}: {group.line()}"
            theirs = read(kafka.ask(group.line())[0])
            group.members = {name: group.members[name] for name in theirs}
            ours = assign_tasks(group.members, group.sizes, group.standbys)
            standbys = check_whole(group, ours, shown)
            assert standbys == check_whole(group, theirs, shown), shown
            done["even"] += sizes(ours) == sizes(theirs)
            done["kept by Kafka's"] += len(kept(group, theirs))
            done["standbys"] += standbys
            done["kept"] += len(kept(group, ours))
            done["moved"] += sum(sizes(ours)) - len(kept(group, ours))
            done["same"] += ours == theirs
            done["steps"] += 1
            done["shared process"] += len({each.process_id for each in group.members.values()}) < len(group.members)
            group.members = {name: each._replace(tasks=theirs[name]) for name, each in group.members.items()}
    assert all(done[what] >= least for what, least in LEAST.items()), done
    assert done["even"] > 0.95 * done["steps"], done
    assert done["kept"] > 0.995 * done["kept by Kafka's"], done


def drawn(chosen: random.Random) -> tuple[StreamsGroupTopologyValue, dict[str, int]]:
    """A topology, and topics with their partitions: most of them fit."""
    sources = [f"s{each}" for each in range(chosen.randint(1, 4))]
    repartition = [f"r{each}" for each in range(chosen.randint(0, 3))]
    even = chosen.randint(1, 4)
    subtopologies = []
    unread = [*repartition]
    for number in range(chosen.randint(1, 3)):
        reads = chosen.sample(sources, chosen.randint(0 if number and unread else 1, min(2, len(sources))))
        if chosen.random() < 0.02:
            reads = []
        ours = [unread.pop() for _ in range(chosen.randint(0, len(unread)))]
        kept_in = [f"c{number}-{each}" for each in range(chosen.randint(0, 2))]
        configs = (TopicConfig("cleanup.policy", "compact"), TopicConfig("a", "b"))[: chosen.randint(0, 2)]
        changelogs = tuple(TopicInfo(name, 0, chosen.choice([0, 3]), configs) for name in kept_in)
        infos = tuple(TopicInfo(name, chosen.choice([0, 0, 0, even, 7]), chosen.choice([0, 1]), ()) for name in ours)
        groups = []
        if chosen.random() < 0.5:
            places = range(len(reads)) if chosen.random() < 0.95 else range(len(reads) + 1)
            groups.append(CopartitionGroup(tuple(places), (), tuple(range(len(ours)))))
        sinks = tuple(chosen.sample(repartition, chosen.randint(0, len(repartition))))
        subtopologies.append(Subtopology(str(number), tuple(reads), (), changelogs, sinks, infos, tuple(groups)))
    names = [*sources, *repartition, *(topic.name for each in subtopologies for topic in each.state_changelog_topics)]
    exists = 1.0 if chosen.random() < 0.15 else 0.3
    topics = {
        name: even if chosen.random() < 0.9 else chosen.randint(1, 4)
        for name in names
        if chosen.random() < (0.97 if name in sources else exists)
    }
    return StreamsGroupTopologyValue(3, tuple(subtopologies)), topics


def shown_as_by_kafka(configured: ConfiguredTopology) -> str:
    status = "READY" if configured.status is None else configured.status.name
    subtopologies = "none"
    if configured.subtopologies is not None:
        each_shown = [
            " ".join(
                (
                    name,
                    str(each.tasks),
                    _listed(each.source_topics),
                    _topics(each.repartition_source_topics),
                    _listed(each.repartition_sink_topics),
                    _topics(each.state_changelog_topics),
                )
            )
            for name, each in configured.subtopologies.items()
        ]
        subtopologies = f"[{', '.join(each_shown)}]"
    missing = [
        f"{name}:{topic.partitions}:{topic.replication_factor or -1}"
        for name, topic in sorted(configured.missing_internal_topics.items())
    ]
    return "; ".join((status, subtopologies, f"[{', '.join(missing)}]", configured.detail))


def _listed(names: frozenset[str]) -> str:
    return f"[{', '.join(sorted(names))}]"


def _topics(topics: Mapping[str, InternalTopic]) -> str:
    found = []
    for name, topic in sorted(topics.items()):
        configs = ", ".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
        found.append(f"{name}:{topic.partitions}:{topic.replication_factor or -1}:{{{configs}}}")
    return f"[{', '.join(found)}]"


def comparable(shown: str) -> str:
    """Without the choice of topics to name, which Java's hash maps make."""
    shown = re.sub(r"Existing topic .*", "Existing topic", shown)
    shown = re.sub(r"\[\d+\] of repartition topic \[\w+\]", "of repartition topic", shown)
    return re.sub(r"(are missing: ).*?( and|$)", r"\1\2", shown)


def test_topologies_are_configured_as_by_kafka(kafka: Lines) -> None:
    done: Counter[str] = Counter()
    for seed in range(TOPOLOGIES):
        topology, topics = drawn(random.Random(seed))
        line = " ".join(
            ("topology", encode_group_value(topology).hex(), ",".join(f"{k}:{v}" for k, v in topics.items()))
        )
        theirs = kafka.ask(line)[0]
        try:
            ours = shown_as_by_kafka(configure(topology, topics.get))
        except KafkaError as error:
            assert theirs.startswith("thrown "), (seed, str(error), theirs)
            kind = theirs.split()[1]
            done[f"thrown {kind}"] += 1
            ours = f"thrown {kind} {error.message}"
            if kind != "StreamsInvalidTopologyException":  # Kafka's code fails there, and ours names the error
                theirs = ours
        else:
            done[ours.partition(";")[0]] += 1
        assert comparable(ours) == comparable(theirs), (seed, topology, topics)
    assert all(done[what] >= least for what, least in LEAST_TOPOLOGIES.items()), done


def test_kafka_passes_over_the_description_in_a_topology(kafka: Lines) -> None:
    """The field of ours: a coordinator of Kafka that takes the log over reads the rest of the record."""
    topology, topics = next(
        each for each in (drawn(random.Random(seed)) for seed in range(TOPOLOGIES)) if _is_ready(*each)
    )
    listed = ",".join(f"{name}:{count}" for name, count in topics.items())
    plain, described = (
        kafka.ask(" ".join(("topology", encode_group_value(each).hex(), listed)))[0]
        for each in (topology, topology.replaced(description=b"\x01" * 300))
    )
    assert plain == described and plain.startswith("READY")


def _is_ready(topology: StreamsGroupTopologyValue, topics: dict[str, int]) -> bool:
    try:
        return configure(topology, topics.get).is_ready
    except KafkaError:
        return False
