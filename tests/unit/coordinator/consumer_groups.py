"""A driver for consumer groups: members by name, topics made and deleted, the log as it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.requests import ConsumerHeartbeat
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import PartitionRegistration
from tests.unit.coordinator.harness import SimulatedDriver

Owned = Mapping[UUID, frozenset[int]]


class Groups:
    """The group `g`, unless another is named."""

    def __init__(self, **settings: Any) -> None:
        settings = {"consumer_assignment_interval_ms": 0, "initial_rebalance_delay_ms": 0, **settings}
        self.driver = SimulatedDriver(GroupConfig(**settings))
        self.topics: dict[str, UUID] = {}

    # Topics

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
            found.changes = {number: _partition() for number in range(count)}
        self.driver.change_topics(delta)

    def delete(self, name: str) -> None:
        delta = MetadataDelta(self.driver.image)
        delta.delete_topic(self.topics.pop(name))
        self.driver.change_topics(delta)

    def owned(self, **partitions: Iterable[int]) -> Owned:
        return {self.topics[name]: frozenset(numbers) for name, numbers in partitions.items()}

    # Requests

    def send(self, member_id: str, epoch: int, **named: Any) -> Any:
        """The response, or the code of the error."""
        request = ConsumerHeartbeat(
            group_id=named.pop("group", "g"),
            member_id=member_id,
            member_epoch=epoch,
            client_id="c",
            client_host="/h",
            **named,
        )
        before = len(self.driver.replies)
        try:
            self.driver.shard.ask(member_id, request, self.driver.now)
        except KafkaError as error:
            return error.code
        self.driver.run()
        found = [answer for token, answer in self.driver.replies[before:] if token == member_id]
        return found[-1] if found else None

    def join(self, member_id: str, *topics: str, **named: Any) -> Any:
        subscription = {} if "pattern" in named else {"topics": topics}
        return self.send(member_id, 0, **{"rebalance_timeout_ms": 60_000, "owned": {}, **subscription, **named})

    def poll(self, member_id: str, **named: Any) -> Any:
        """A heartbeat of a member that has done what it was told: with its epoch and what it has."""
        member = self.group().members[member_id]
        named.setdefault("owned", {each: frozenset(found) for each, found in member.assigned.items()})
        return self.send(member_id, member.epoch, instance_id=member.instance_id, **named)

    def settle(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            for member_id in [*self.group().members]:
                self.poll(member_id)

    # Questions

    def group(self, group_id: str = "g") -> ConsumerGroup:
        found = self.driver.shard.state.groups[group_id]
        assert isinstance(found, ConsumerGroup)
        return found

    def assigned(self, member_id: str) -> dict[str, list[int]]:
        names = {topic_id: name for name, topic_id in self.topics.items()}
        member = self.group().members[member_id]
        return {names[topic_id]: sorted(found) for topic_id, found in member.assigned.items()}

    def state(self) -> str:
        return self.group().shown_state


def _partition() -> PartitionRegistration:
    return PartitionRegistration((1,), (1,), 1, 0, 0, (UUID(int=1),))


__all__ = ["ErrorCode", "Groups"]
