"""What becomes of partitions when a broker comes, goes, or loses a directory (Kafka's `ReplicationControlManager`).

Each function goes through the replicas of one broker, in steps, and appends the changes to `records`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from ottla.config.effective import EffectiveConfig
from ottla.controller.partition_change import Changes
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from ottla.metadata.replica_index import index_steps, partitions_of
from ottla.model import NodeId

CHANGES_PER_STEP = 128
"""Electing a leader of a partition costs some 5 us."""

Work = Generator[None, None, None]


class PartitionPlace(NamedTuple):
    """A partition, and where in the image it was found."""

    topic: TopicImage
    number: int
    partition: PartitionRegistration


def leave(image: MetadataImage, config: EffectiveConfig, node_id: NodeId, records: list[Any]) -> Work:
    """A broker is fenced, stops or is unregistered: it leaves the ISR, and other replicas lead its partitions where
    possible.
    """
    yield from index_steps(image)
    changes = Changes(image, config, leaving=node_id)
    yield from _update(changes, image, node_id, lambda each: node_id in each.isr or node_id in each.elr, records)


def lose(image: MetadataImage, config: EffectiveConfig, node_id: NodeId, records: list[Any]) -> Work:
    """A broker lost what it had not fsynced: it must not be elected for what it had (KIP-966)."""
    yield from index_steps(image)
    changes = Changes(image, config, unclean=node_id)
    yield from _update(changes, image, node_id, lambda each: node_id in each.isr or node_id in each.elr, records)


def come_back(image: MetadataImage, config: EffectiveConfig, node_id: NodeId, records: list[Any]) -> Work:
    """A broker is unfenced: it leads what nobody else could lead meanwhile."""
    yield from index_steps(image)
    changes = Changes(image, config, returning=node_id)
    yield from _update(changes, image, node_id, lambda each: each.leader == NO_LEADER, records)


def lose_directories(
    image: MetadataImage, config: EffectiveConfig, node_id: NodeId, directories: Collection[UUID], records: list[Any]
) -> Work:
    """Directories of a broker failed: what is in them is as if the broker were fenced (KIP-858)."""
    yield from index_steps(image)
    changes = Changes(image, config, leaving=node_id)
    yield from _update(changes, image, node_id, lambda each: each.directory(node_id) in directories, records)


def leave_partitions(
    image: MetadataImage,
    config: EffectiveConfig,
    node_id: NodeId,
    places: Iterable[PartitionPlace],
    records: list[Any],
) -> Work:
    """Like `leave`, for some partitions."""
    yield from _change(Changes(image, config, leaving=node_id), places, node_id, records)


def has_leaderships(image: MetadataImage, node_id: NodeId) -> Generator[None, None, bool]:
    """Whether a broker leads anything."""
    yield from index_steps(image)
    for count, (_, _, partition) in enumerate(partitions_of(image, node_id), start=1):
        if partition.leader == node_id:
            return True
        if count % CHANGES_PER_STEP == 0:
            yield
    return False


def _update(
    changes: Changes,
    image: MetadataImage,
    node_id: NodeId,
    is_concerned: Callable[[PartitionRegistration], bool],
    records: list[Any],
) -> Work:
    found = []
    for count, (topic, number, partition) in enumerate(partitions_of(image, node_id), start=1):
        if is_concerned(partition):
            found.append(PartitionPlace(topic, number, partition))
        if count % CHANGES_PER_STEP == 0 or len(found) == CHANGES_PER_STEP:
            yield from _change(changes, found, node_id, records)
            found = []
            yield
    yield from _change(changes, found, node_id, records)


def _change(changes: Changes, places: Iterable[PartitionPlace], node_id: NodeId, records: list[Any]) -> Work:
    goes = changes.returning != node_id
    for count, (topic, number, partition) in enumerate(places, start=1):
        change = changes.of(topic, number, partition).allow_unclean()
        if goes and node_id in partition.isr:
            change.isr = [each for each in partition.isr if each != node_id]
        record = change.record()
        if record is not None:
            records.append(record)
        if count % CHANGES_PER_STEP == 0:
            yield


def made_good(image: MetadataImage, config: EffectiveConfig) -> Generator[None, None, list[Any]]:
    """The changes that follow from who lives, for an image that comes from elsewhere: replicas whose broker does not
    live leave the ISR and lead nothing, and what nobody leads is led again where it can be."""
    yield from index_steps(image)
    records: list[Any] = []
    changes = Changes(image, config)
    for topic in image.topics:
        for count, (number, partition) in enumerate(topic.partitions.items(), start=1):
            gone = [each for each in partition.isr if not _lives(image, each)]
            if gone or partition.leader == NO_LEADER or not _lives(image, partition.leader):
                change = changes.of(topic, number, partition).allow_unclean()
                change.isr = [each for each in partition.isr if each not in gone]
                record = change.record()
                if record is not None:
                    records.append(record)
            if count % CHANGES_PER_STEP == 0:
                yield
        yield
    return records


def _lives(image: MetadataImage, node_id: NodeId) -> bool:
    broker = image.brokers.get(node_id)
    return broker is not None and broker.active
