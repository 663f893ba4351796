"""Which brokers get a new partition's replicas (Kafka's `StripedReplicaPlacer`), and checks of manual assignments.

Placement stripes over racks, then over each rack's brokers from a random start, so that leaders are spread evenly and
the replicas of a partition lie in different racks where there are enough. The first replica is never a fenced broker.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from ottla.model import NodeId


def place(
    image: MetadataImage, count: int, replication_factor: int, random: random_module.Random
) -> list[list[NodeId]]:
    """Replicas of `count` new partitions. Raises KafkaError INVALID_REPLICATION_FACTOR."""
    brokers = [broker for broker in image.brokers.values() if has_room(broker)]
    if replication_factor <= 0:
        raise _invalid(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if not any(broker.active for broker in brokers):
        raise _invalid("All brokers are currently fenced or have all their log directories cordoned.")
    if replication_factor > len(brokers):
        raise _invalid(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if len(brokers) == 1:
        return [[brokers[0].id]] * count
    return list(islice(_stripes(brokers, replication_factor, random), count))


def has_room(broker: BrokerRegistration) -> bool:
    """Whether a directory of the broker takes new partitions (KIP-1066)."""
    return not broker.log_dirs or any(each not in broker.cordoned_log_dirs for each in broker.log_dirs)


def _stripes(
    brokers: Sequence[BrokerRegistration], replication_factor: int, random: random_module.Random
) -> Iterator[list[NodeId]]:
    racks: dict[str | None, list[BrokerRegistration]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker)
    lists = list(racks.values())
    while True:
        random.shuffle(lists)
        for rack in lists:
            random.shuffle(rack)
        order = [broker for stripe in _transposed(lists) for broker in stripe]
        for start, leader in enumerate(order):
            if not leader.active:
                continue
            turned = order[start:] + order[:start]
            # Unfenced followers first: they can be in the ISR at once.
            followers = sorted(_other_racks_first(leader, turned[1:]), key=lambda broker: not broker.active)
            yield [leader.id, *(broker.id for broker in followers[: replication_factor - 1])]


def _transposed(lists: Sequence[Sequence[BrokerRegistration]]) -> Iterator[list[BrokerRegistration]]:
    for index in range(max(map(len, lists))):
        yield [rack[index] for rack in lists if index < len(rack)]


def _other_racks_first(leader: BrokerRegistration, others: Sequence[BrokerRegistration]) -> list[BrokerRegistration]:
    """The first broker of each other rack, then the rest: as many racks as there are replicas."""
    seen = {leader.rack}
    first, rest = [], []
    for broker in others:
        if broker.rack in seen:
            rest.append(broker)
        else:
            seen.add(broker.rack)
            first.append(broker)
    return first + rest


def check_manual(image: MetadataImage, replicas: Sequence[NodeId], replication_factor: int | None) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT. `replication_factor` is that of the topic's other partitions."""
    if not replicas:
        raise _assignment("The manual partition assignment includes an empty replica list.")
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
    directories = tuple(_default_directory(image.brokers[broker]) for broker in replicas)
    return PartitionRegistration(tuple(replicas), isr, isr[0], 0, 0, directories)


def _default_directory(broker: BrokerRegistration) -> UUID:
    """The directory of a broker that has only one; with several the broker itself chooses (KIP-858)."""
    if not broker.log_dirs:
        return DIRECTORY_MIGRATING
    usable = [each for each in broker.log_dirs if each not in broker.cordoned_log_dirs]
    return usable[0] if len(usable) == 1 else DIRECTORY_UNASSIGNED


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replication_factor, message)


def _assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)
