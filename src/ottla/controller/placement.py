"""Chooses the brokers of a new partition's replicas (like Kafka's `StripedReplicaPlacer`), and checks manual
assignments.

Replicas go round the racks, and within a rack round its brokers, so that the replicas of a partition lie in as many
racks as there are. In each rack unfenced brokers come first, and the first replica is always one of them: each leads
once before one leads again, in every other rack than the one before. (In Kafka racks take turns, so that brokers of a
small rack lead more.) Then everything is shuffled, so that no pair of brokers shares many more partitions than others.
"""

from __future__ import annotations

import heapq
import random as random_module
from collections.abc import Container, Iterable, Sequence
from itertools import zip_longest

from ottla.controller.partition_change import default_directory
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from ottla.model import NodeId


def place(
    image: MetadataImage, count: int, replication_factor: int, random: random_module.Random
) -> list[list[NodeId]]:
    """Replicas of `count` new partitions. Raises KafkaError INVALID_REPLICATION_FACTOR."""
    brokers = [each for each in image.brokers.values() if has_room(each) and (each.fenced or each.active)]
    if replication_factor <= 0:
        raise _invalid(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if not any(broker.active for broker in brokers):
        raise _invalid("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(brokers):
        raise _invalid(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if len(brokers) == 1:
        return [[brokers[0].id]] * count
    racks = _Racks(brokers, random)
    return [racks.place(replication_factor) for _ in range(count)]


def has_room(broker: BrokerRegistration) -> bool:
    """Whether a directory of the broker takes new partitions (KIP-1066)."""
    return not broker.log_dirs or any(each not in broker.cordoned_log_dirs for each in broker.log_dirs)


class _Ring:
    """Brokers of a rack that are in the same state, taken in turn as followers."""

    def __init__(self, brokers: Iterable[NodeId]) -> None:
        self.brokers = sorted(brokers)
        self._next = 0

    def take(self, used: Container[NodeId]) -> NodeId | None:
        """The next one that a partition does not have yet."""
        for _ in self.brokers:
            broker = self.brokers[self._next % len(self.brokers)]
            self._next += 1
            if broker not in used:
                return broker
        return None


class _Rack:
    def __init__(self, brokers: Sequence[BrokerRegistration]) -> None:
        self.unfenced = _Ring(each.id for each in brokers if not each.fenced)
        self.fenced = _Ring(each.id for each in brokers if each.fenced)

    def take(self, used: Container[NodeId]) -> NodeId | None:
        found = self.unfenced.take(used)
        return self.fenced.take(used) if found is None else found


class _Racks:
    """Needs an unfenced broker, and as many brokers as a partition has replicas."""

    def __init__(self, brokers: Sequence[BrokerRegistration], random: random_module.Random) -> None:
        self._random = random
        by_name: dict[str | None, list[BrokerRegistration]] = {}
        for broker in brokers:
            by_name.setdefault(broker.rack, []).append(broker)
        names = sorted(by_name, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_name[name]) for name in names]
        self._leaders: list[tuple[int, NodeId]] = []
        """Rack and broker of those whose turn is still to come."""

    def place(self, replication_factor: int) -> list[NodeId]:
        if not self._leaders:
            self._shuffle()
        rack, leader = self._leaders.pop()
        replicas = [leader]
        while len(replicas) < replication_factor:
            rack = (rack + 1) % len(self._racks)
            replica = self._racks[rack].take(replicas)
            if replica is not None:
                replicas.append(replica)
        return replicas

    def _shuffle(self) -> None:
        """All unfenced brokers will lead once more: one of each rack, then another of each."""
        racks = self._racks
        self._random.shuffle(racks)
        for rack in racks:
            self._random.shuffle(rack.unfenced.brokers)
            self._random.shuffle(rack.fenced.brokers)
        rows = zip_longest(*(rack.unfenced.brokers for rack in racks))
        self._leaders = [(rack, each) for row in rows for rack, each in enumerate(row) if each is not None]
        self._leaders.reverse()


def check_manual(image: MetadataImage, replicas: Sequence[NodeId], replication_factor: int | None) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT. `replication_factor` is that of the topic's other partitions."""
    if not replicas:
        raise _assignment("The manual partition assignment includes an empty replica list.")
    if len(replicas) > len(image.brokers):  # some are wrong, and the least one that is will do: there may be many
        replicas = heapq.nsmallest(len(image.brokers) + 1, replicas)
    ordered = sorted(replicas)
    for index, broker in enumerate(ordered):
        if broker not in image.brokers:
            raise _assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if index and ordered[index - 1] == broker:
            raise _assignment(f"The manual partition assignment includes the broker {broker} more than once.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def new_partition(image: MetadataImage, replicas: Sequence[NodeId]) -> PartitionRegistration | None:
    """A partition's first state, led by the first replica that can; None while none can."""
    isr = tuple(broker for broker in replicas if image.brokers[broker].active)
    if not isr:
        return None
    directories = tuple(default_directory(image.brokers[broker]) for broker in replicas)
    return PartitionRegistration(tuple(replicas), isr, isr[0], 0, 0, directories)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replication_factor, message)


def _assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)
