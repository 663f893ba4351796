"""A driver for streams groups: members by name, what they run, topics made and deleted, the log as it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.requests import StreamsHeartbeat, TaskRows
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.errors import KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import ConfigResource, ConfigResourceType, PartitionRegistration
from ottla.protocol.schemas.records import StreamsGroupTopologyValue, Subtopology, TopicConfig, TopicInfo
from tests.unit.coordinator.harness import SimulatedDriver

Tasks = Mapping[str, Iterable[int]]


def subtopology(
    name: str,
    *sources: str,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    keeps: Iterable[str] = (),
    read_partitions: int = 0,
) -> Subtopology:
    """One that reads topics and repartition topics, writes to some, and keeps changelogs."""
    compacted = (TopicConfig("cleanup.policy", "compact"),)
    return Subtopology(
        subtopology_id=name,
        source_topics=sources,
        state_changelog_topics=tuple(TopicInfo(each, 0, 0, compacted) for each in keeps),
        repartition_sink_topics=tuple(writes),
        repartition_source_topics=tuple(TopicInfo(each, read_partitions, 0, ()) for each in reads),
    )


SIMPLE = StreamsGroupTopologyValue(0, (subtopology("0", "t"),))
"""One subtopology without state, that reads t."""
COUNTING = StreamsGroupTopologyValue(
    0, (subtopology("0", "t", writes=["r"]), subtopology("1", reads=["r"], keeps=["c"]))
)
"""Reads t, repartitions by r, counts with the changelog c."""


class Groups:
    """The group `g`, unless another is named. Its first assignment waits for nobody, unless told."""

    def __init__(self, settings: Mapping[str, Any] | None = None, **config: Any) -> None:
        default = GroupConfig()
        streams = {
            **default.streams,
            "group.streams.initial.rebalance.delay.ms": 0,
            "group.streams.assignment.interval.ms": 0,
            **(settings or {}),
        }
        self.driver = SimulatedDriver(GroupConfig(initial_rebalance_delay_ms=0, streams=streams, **config))
        self.topics: dict[str, UUID] = {}

    # The cluster

    def create(self, **topics: int) -> None:
        """Topics with so many partitions each; more partitions for one that is there."""
        delta = MetadataDelta(self.driver.image)
        for name, count in topics.items():
            topic_id = self.topics.get(name)
            if topic_id is None:
                topic_id = self.topics[name] = UUID(int=0xA0 + len(self.topics))
                delta.create_topic(name, topic_id)
            found = delta.topic_delta(topic_id)
            assert found is not None
            found.changes = {
                number: PartitionRegistration((1,), (1,), 1, 0, 0, (UUID(int=1),)) for number in range(count)
            }
        self.driver.change_topics(delta)

    def delete(self, name: str) -> None:
        delta = MetadataDelta(self.driver.image)
        delta.delete_topic(self.topics.pop(name))
        self.driver.change_topics(delta)

    def configure(self, **settings: str) -> None:
        """Settings of the group: dots are underscores."""
        delta = MetadataDelta(self.driver.image)
        delta.configs[ConfigResource(ConfigResourceType.GROUP, "g")] = {
            f"streams.{name.replace('_', '.')}": value for name, value in settings.items()
        }
        self.driver.change_topics(delta)

    # Requests

    def send(self, member_id: str, epoch: int, **named: Any) -> Any:
        """The response, or the code of the error."""
        try:
            return self.sent(member_id, epoch, **named)
        except KafkaError as error:
            return error.code

    def sent(self, member_id: str, epoch: int, **named: Any) -> Any:
        """The same, but errors are raised."""
        owned = named.pop("owned", None)
        request = StreamsHeartbeat(
            group_id=named.pop("group", "g"),
            member_id=member_id,
            member_epoch=epoch,
            client_id="c",
            client_host="/h",
            owned=(None, None, None) if owned is None else owned,
            **named,
        )
        before = len(self.driver.replies)
        self.driver.shard.ask(member_id, request, self.driver.now)
        self.driver.run()
        found = [answer for token, answer in self.driver.replies[before:] if token == member_id]
        return found[-1] if found else None

    def join(self, member_id: str, topology: StreamsGroupTopologyValue = SIMPLE, **named: Any) -> Any:
        """Each in a process of its own, unless told."""
        joining = {
            "rebalance_timeout_ms": 60_000,
            "owned": ((), (), ()),
            "process_id": f"p-{member_id}",
            "client_tags": (),
            "topology": topology,
        }
        return self.send(member_id, 0, **{**joining, **named})

    def poll(self, member_id: str, **named: Any) -> Any:
        """A heartbeat of a member that has done what it was told: with its epoch and what it has."""
        member = self.group().members[member_id]
        has = member.assigned
        named.setdefault("owned", (rows(has.active), rows(has.standby), rows(has.warmup)))
        return self.send(member_id, member.epoch, **named)

    def settle(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            for member_id in [*self.group().members]:
                self.poll(member_id)

    # Questions

    def group(self, group_id: str = "g") -> StreamsGroup:
        found = self.driver.shard.state.groups[group_id]
        assert isinstance(found, StreamsGroup)
        return found

    def active(self, member_id: str) -> list[str]:
        """Tasks as Java writes them."""
        return named(self.group().members[member_id].assigned.active)

    def standby(self, member_id: str) -> list[str]:
        return named(self.group().members[member_id].assigned.standby)

    def state(self) -> str:
        return self.group().shown_state


def rows(tasks: Tasks) -> TaskRows:
    return [(name, sorted(numbers)) for name, numbers in tasks.items()]


def named(tasks: Tasks) -> list[str]:
    return sorted(f"{name}_{number}" for name, numbers in tasks.items() for number in numbers)


def statuses(response: Any) -> list[int]:
    return [each["status_code"] for each in response["status"]]
