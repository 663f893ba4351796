"""Index of partitions by the brokers of their replicas: work for one broker costs by its replicas, not by all.

The index is made when a controller first needs it, and from then on goes from image to image with what changed. It has
replicas and not who is in sync, so that a fail-over does not change it (Kafka's `BrokersToIsrs` does).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Protocol

from immutables import Map

from ottla.metadata.image import MetadataImage, PartitionRegistration, ReplicaIndex, TopicImage, shared
from ottla.model import NodeId, TopicId
from ottla.steps import at_once

PARTITIONS_PER_STEP = 500
"""Looking at a partition's replicas costs a microsecond or two."""

_NOTHING: Map[TopicId, tuple[int, ...]] = Map()


def index_steps(image: MetadataImage) -> Generator[None, None, None]:
    """Make the index of an image that has none. Nothing that can be seen changes but how long `partitions_of` takes."""
    if image.replica_index is not None:
        return
    found: dict[NodeId, Any] = {}
    count = 0
    for topic in image.topics:
        rows: dict[NodeId, list[int]] = {}
        for number, partition in topic.partitions.items():
            for node_id in partition.replicas:
                rows.setdefault(node_id, []).append(number)
            count += 1
            if count % PARTITIONS_PER_STEP == 0:
                yield
        for node_id, numbers in rows.items():
            if node_id not in found:
                found[node_id] = _NOTHING.mutate()
            found[node_id][topic.id] = shared(tuple(numbers))
    index = Map({node_id: topics.finish() for node_id, topics in found.items()})
    object.__setattr__(image, "replica_index", index)


def partitions_of(image: MetadataImage, node_id: NodeId) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """(topic, number, partition) of all replicas of a broker; without an index, that is made first."""
    at_once(index_steps(image))
    assert image.replica_index is not None
    for topic_id, numbers in image.replica_index.get(node_id, _NOTHING).items():
        topic = image.topics_by_id[topic_id]
        for number in numbers:
            yield topic, number, topic.partitions[number]


class ChangedTopic(Protocol):
    """What a delta has of a topic: `TopicDelta`."""

    @property
    def changes(self) -> Mapping[int, PartitionRegistration]: ...
    def previous(self, number: int, /) -> PartitionRegistration | None: ...


def reindexed(
    index: ReplicaIndex, deleted: Mapping[TopicId, TopicImage], topics: Mapping[TopicId, ChangedTopic]
) -> ReplicaIndex:
    """The index after topics were deleted and others changed."""
    changed: dict[NodeId, dict[TopicId, tuple[int, ...]]] = {}
    for topic_id, gone in deleted.items():
        for partition in gone.partitions.values():
            for node_id in partition.replicas:
                changed.setdefault(node_id, {})[topic_id] = ()
    for topic_id, topic in topics.items():
        come: dict[NodeId, set[int]] = {}
        go: dict[NodeId, set[int]] = {}
        for number, now in topic.changes.items():
            before = topic.previous(number)
            old = () if before is None else before.replicas
            if old == now.replicas:
                continue
            for node_id in now.replicas:
                if node_id not in old:
                    come.setdefault(node_id, set()).add(number)
            for node_id in old:
                if node_id not in now.replicas:
                    go.setdefault(node_id, set()).add(number)
        for node_id in (*come, *(each for each in go if each not in come)):
            numbers = set(index.get(node_id, _NOTHING).get(topic_id, ()))
            numbers = (numbers - go.get(node_id, set())) | come.get(node_id, set())
            changed.setdefault(node_id, {})[topic_id] = shared(tuple(sorted(numbers)))
    return _merged(index, changed) if changed else index


def _merged(index: ReplicaIndex, changed: Mapping[NodeId, Mapping[TopicId, tuple[int, ...]]]) -> ReplicaIndex:
    with index.mutate() as nodes:
        for node_id, topics in changed.items():
            with nodes.get(node_id, _NOTHING).mutate() as rows:
                for topic_id, numbers in topics.items():
                    if numbers:
                        rows[topic_id] = numbers
                    elif topic_id in rows:
                        del rows[topic_id]
                nodes[node_id] = rows.finish()
        merged: ReplicaIndex = nodes.finish()
    return merged
