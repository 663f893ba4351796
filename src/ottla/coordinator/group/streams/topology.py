"""What a streams application's topology needs of the cluster: partitions of its internal topics, and tasks (KIP-1071).

A subtopology has as many tasks as its largest source topic has partitions; its changelogs have as many partitions. A
repartition topic has as many as the application asks for, else as many as the largest topic that is read by a
subtopology which writes to it. Topics that are joined must have equally many.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.schemas.records import StreamsGroupTopologyValue, Subtopology, TopicInfo

PartitionsOf = Callable[[str], int | None]
"""How many partitions a topic of the cluster has; None where it does not exist."""
_NAMES_SHOWN: Final = 3

ITEMS_MAX: Final = 3_000
"""Subtopologies, topics, their settings and groups of joined topics that a topology may have: ten times what the
largest applications have. What a group keeps of it takes a megabyte at most, and a member's first heartbeat some 30 ms,
in one piece."""

TASKS_MAX: Final = 10_000
"""Tasks of a group; to assign them takes some 50 ms in one piece."""


class TopologyStatus(IntEnum):
    """Why a topology cannot run as things are; the codes of StreamsGroupHeartbeat's statuses."""

    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3


@dataclass(slots=True, frozen=True)
class InternalTopic:
    name: str
    partitions: int
    replication_factor: int | None
    """None for the brokers' default."""
    configs: dict[str, str]


@dataclass(slots=True, frozen=True)
class ConfiguredSubtopology:
    tasks: int
    source_topics: frozenset[str]
    repartition_source_topics: dict[str, InternalTopic]
    repartition_sink_topics: frozenset[str]
    state_changelog_topics: dict[str, InternalTopic]


@dataclass(frozen=True)
class ConfiguredTopology:
    epoch: int
    subtopologies: dict[str, ConfiguredSubtopology] | None
    """Sorted by id; None if the topics do not determine it."""
    missing_internal_topics: dict[str, InternalTopic]
    """Internal topics to create."""
    status: TopologyStatus | None
    detail: str

    @property
    def is_ready(self) -> bool:
        return self.status is None

    @cached_property
    def stateful(self) -> frozenset[str]:
        """Subtopologies that keep state, which has to be restored where a task moves to."""
        found = self.subtopologies or {}
        return frozenset(name for name, each in found.items() if each.state_changelog_topics)


class _Unready(Exception):
    def __init__(self, status: TopologyStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def required_topics(topology: StreamsGroupTopologyValue) -> frozenset[str]:
    """Topics that the application reads or keeps its state in."""
    return frozenset(
        name
        for each in topology.subtopologies
        for name in (*_read(each), *(topic.name for topic in each.state_changelog_topics))
    )


def configure(topology: StreamsGroupTopologyValue, partitions_of: PartitionsOf) -> ConfiguredTopology:
    """Raises STREAMS_INVALID_TOPOLOGY where no topics could ever suit the topology, and UNKNOWN_SERVER_ERROR for
    numbers that Kafka's classes do not take."""
    copartitioned = [names for each in topology.subtopologies for names in _copartitioned(each)]
    try:
        _check_sources(topology, partitions_of)
        counts = _Counts(topology, partitions_of)
        counts.decide(copartitioned)
        subtopologies = {each.subtopology_id: counts.configured(each) for each in topology.subtopologies}
        subtopologies = {name: subtopologies[name] for name in sorted(subtopologies)}
        _check_tasks(subtopologies)
        missing = _missing(topology, subtopologies, partitions_of)
    except _Unready as error:
        return _checked(ConfiguredTopology(topology.epoch, None, {}, error.status, str(error)))
    status = TopologyStatus.MISSING_INTERNAL_TOPICS if missing else None
    detail = f"Internal topics are missing: {_names(missing)}" if missing else ""
    return _checked(ConfiguredTopology(topology.epoch, subtopologies, missing, status, detail))


def _checked(topology: ConfiguredTopology) -> ConfiguredTopology:
    if topology.epoch < 0:
        raise KafkaError(ErrorCode.streams_invalid_topology, "The epoch of the topology is negative.")
    return topology


def _check_sources(topology: StreamsGroupTopologyValue, partitions_of: PartitionsOf) -> None:
    sources = {name for each in topology.subtopologies for name in each.source_topics}
    missing = sorted(name for name in sources if partitions_of(name) is None)
    if missing:
        raise _Unready(TopologyStatus.MISSING_SOURCE_TOPICS, f"Source topics {_names(missing)} are missing.")


def _check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    """Raises _Unready: with fewer partitions the topology could run."""
    tasks = sum(each.tasks for each in subtopologies.values())
    if tasks > TASKS_MAX:
        detail = f"The topology has {tasks} tasks with the partitions of its topics; a group may have {TASKS_MAX}."
        raise _Unready(TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


class _Counts:
    """Partitions of the internal topics, found one after another."""

    def __init__(self, topology: StreamsGroupTopologyValue, partitions_of: PartitionsOf) -> None:
        self._subtopologies = topology.subtopologies
        self._partitions_of = partitions_of
        self._decided: dict[str, int] = {}
        """Partition counts by topic; an existing topic's count comes first."""
        repartition = [topic for each in topology.subtopologies for topic in each.repartition_source_topics]
        self._fixed = {topic.name for topic in repartition if topic.partitions}
        self._internal = {topic.name for topic in repartition}

    def decide(self, copartitioned: Iterable[frozenset[str]]) -> None:
        """Raises _Unready and STREAMS_INVALID_TOPOLOGY."""
        self._decided.update(self._repartitioned())
        for names in filter(None, copartitioned):
            self._decided.update(self._copartitions(names))
        changelogs = {}
        for each in self._subtopologies:
            if not any(True for _ in _read(each)):
                raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
            tasks = self._tasks(each)
            changelogs.update({topic.name: tasks for topic in each.state_changelog_topics})
        self._decided.update(changelogs)

    def configured(self, each: Subtopology) -> ConfiguredSubtopology:
        return ConfiguredSubtopology(
            self._tasks(each),
            frozenset(each.source_topics),
            {topic.name: self._topic(topic) for topic in each.repartition_source_topics},
            frozenset(each.repartition_sink_topics),
            {topic.name: self._topic(topic) for topic in each.state_changelog_topics},
        )

    def _repartitioned(self) -> dict[str, int]:
        """By repartition topic. One may be read to fill another: Kafka visits the subtopologies in rounds, and what it
        finds depends on their order. The visits that find something are made here in the same order, no others."""
        repartition = [topic for each in self._subtopologies for topic in each.repartition_source_topics]
        found = {topic.name: topic.partitions for topic in repartition if topic.partitions}
        readers: dict[str, list[int]] = {}
        for place, each in enumerate(self._subtopologies):
            for topic in each.repartition_source_topics:
                readers.setdefault(topic.name, []).append(place)
        visits = [(0, place) for place in range(len(self._subtopologies))]
        done = set()
        while visits:
            round_number, place = heapq.heappop(visits)
            if place in done:
                continue
            each = self._subtopologies[place]
            sinks = [name for name in each.repartition_sink_topics if name not in found]
            count = self._most_read(each, found) if sinks else None
            if count is None:
                continue
            done.add(place)
            found.update(dict.fromkeys(sinks, count))
            for name in sinks:
                for reader in readers.get(name, ()):
                    heapq.heappush(visits, (round_number if reader > place else round_number + 1, reader))
        if any(name not in found for each in self._subtopologies for name in each.repartition_sink_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved."
            )
        if any(topic.name not in found for topic in repartition):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because "
                "a repartition source topic is never used as a sink topic."
            )
        return found

    def _most_read(self, each: Subtopology, found: Mapping[str, int]) -> int | None:
        """Partitions of the largest of its source topics with a known number."""
        read = [found.get(topic.name) for topic in each.repartition_source_topics]
        read += [self._partitions_of(source) for source in each.source_topics]
        return max((one for one in read if one is not None), default=None)

    @cached_property
    def _fixed_counts(self) -> frozenset[int]:
        """They stay as they are: a group of joined topics with others is refused."""
        return frozenset(self._count(name) for name in self._fixed)

    def _copartitions(self, names: frozenset[str]) -> dict[str, int]:
        """Partition counts of the repartition topics among copartitioned topics."""
        ours = {name: self._count(name) for name in sorted(names) if name in self._internal}
        others = {name: self._count(name) for name in sorted(names) if name not in self._internal}
        if others:
            count = _same(others.values(), others)
        elif self._fixed:  # those of the whole topology, as Kafka has it
            count = _same(self._fixed_counts, ours)
        else:
            count = max(ours.values())
        for name, found in ours.items():
            if name in self._fixed and found != count:
                raise _Unready(
                    TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{found}] of repartition topic [{name}] "
                    f"doesn't match number of partitions [{count}] of the source topic.",
                )
        return dict.fromkeys(ours, count)

    def _tasks(self, each: Subtopology) -> int:
        return max(self._count(name) for name in _read(each))

    def _topic(self, topic: TopicInfo) -> InternalTopic:
        partitions = topic.partitions or self._decided[topic.name]
        if partitions < 1:  # an application asks for so many
            raise KafkaError(ErrorCode.streams_invalid_topology, f"Topic {topic.name} is to have no partitions.")
        configs = {each.key: each.value for each in topic.topic_configs}
        return InternalTopic(topic.name, partitions, topic.replication_factor or None, configs)

    def _count(self, name: str) -> int:
        existing = self._partitions_of(name)
        return self._decided[name] if existing is None else existing


def _read(each: Subtopology) -> Iterator[str]:
    """The topics that it reads."""
    yield from each.source_topics
    yield from (topic.name for topic in each.repartition_source_topics)


def _copartitioned(each: Subtopology) -> Iterator[frozenset[str]]:
    """Groups of topics that are joined. Raises STREAMS_INVALID_TOPOLOGY for a place that is none (in Kafka 4.3 it is
    UNKNOWN_SERVER_ERROR)."""
    for group in each.copartition_groups:
        places = (*group.source_topics, *group.repartition_source_topics)
        if min(places, default=0) < 0:
            raise KafkaError(ErrorCode.streams_invalid_topology, "A copartition group names no topic.")
        try:
            names = [each.source_topics[place] for place in group.source_topics]
            names += [each.repartition_source_topics[place].name for place in group.repartition_source_topics]
        except IndexError:
            message = "A copartition group names no topic."
            raise KafkaError(ErrorCode.streams_invalid_topology, message) from None
        yield frozenset(names)


def _missing(
    topology: StreamsGroupTopologyValue,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    partitions_of: PartitionsOf,
) -> dict[str, InternalTopic]:
    """Internal topics that have to be created. Raises _Unready for one with another number of partitions."""
    wanted: dict[str, InternalTopic] = {}
    for each in subtopologies.values():
        wanted |= each.repartition_source_topics | each.state_changelog_topics
    for name in sorted(required_topics(topology)):
        existing = partitions_of(name)
        topic = None if existing is None else wanted.pop(name, None)
        if topic is not None and existing != topic.partitions:
            raise _Unready(
                TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {topic.partitions}, found {existing}",
            )
    return wanted


def _same(counts: Iterable[int], shown: Mapping[str, int]) -> int:
    found = set(counts)
    if len(found) > 1:
        listed = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))
        raise _Unready(
            TopologyStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return found.pop()


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.streams_invalid_topology, detail)


def _names(names: Iterable[str]) -> str:
    """The first few of them."""
    listed = sorted(names)
    more = len(listed) - _NAMES_SHOWN
    return ", ".join(listed[:_NAMES_SHOWN]) + (f" and {more} additional topics" if more > 0 else "")
