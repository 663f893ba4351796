"""What a stretch of the metadata log changed, and the image that results.

A delta is made from an image, fed records by `replay.replay`, and turned into the next image once by `apply`. It is
also what subscribers get, so that a change costs them work by what changed and not by the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from ottla.metadata.image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    ConfigResource,
    Configs,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.metadata.replica_index import reindexed
from ottla.model import LeaderEpoch, NodeId, Offset, ProducerId, TopicId

QuotaEntity = tuple[tuple[str, str | None], ...]


class TopicDelta:
    """Changes of one topic: its partitions that are new or different, as they are now."""

    __slots__ = ("base", "changes", "id", "name")

    def __init__(self, name: str, topic_id: TopicId, base: TopicImage | None) -> None:
        self.name = name
        self.id = topic_id
        self.base = base
        """The topic in the base image; None for a topic that this delta creates."""
        self.changes: dict[int, PartitionRegistration] = {}

    @property
    def created(self) -> bool:
        return self.base is None

    def partition(self, partition: int) -> PartitionRegistration | None:
        """The partition as it is now."""
        found = self.changes.get(partition)
        if found is None and self.base is not None:
            return self.base.partitions.get(partition)
        return found

    def previous(self, partition: int) -> PartitionRegistration | None:
        """The partition as the base image has it."""
        return None if self.base is None else self.base.partitions.get(partition)

    def apply(self) -> TopicImage:
        partitions: dict[int, PartitionRegistration]
        if self.base is None:
            partitions = dict(self.changes)
        else:
            partitions = {**self.base.partitions, **self.changes}
            if len(partitions) == len(self.base.partitions):  # in the order that they were in
                return TopicImage(self.name, self.id, partitions)
        if len(partitions) > 1:
            partitions = dict(sorted(partitions.items()))
        return TopicImage(self.name, self.id, partitions)


class MetadataDelta:
    """Everything that changed since `base`. Topics, brokers and settings that are not named here are as they were."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.topics: dict[TopicId, TopicDelta] = {}
        """Topics created, or with partitions that changed."""
        self.deleted_topics: dict[TopicId, TopicImage] = {}
        """Topics of the base image that are gone. One recreated under the same name is in `topics` too."""
        self.configs: dict[ConfigResource, dict[str, str | None]] = {}
        """Settings by resource, None for one that was removed."""
        self.brokers: dict[NodeId, BrokerRegistration | None] = {}
        """Brokers that registered or changed, None for one that is gone."""
        self.controllers: dict[NodeId, ControllerRegistration | None] = {}
        self.features: dict[str, int] = {}
        """Feature levels that changed; 0 for a feature that was switched off."""
        self.next_producer_id: ProducerId | None = None
        self.client_quotas: dict[QuotaEntity, dict[str, float | None]] = {}
        """Changed by `set_client_quota` alone."""
        self.scram_credentials: dict[tuple[str, int], Any] = {}
        self.acls: dict[UUID, Any] = {}
        self.delegation_tokens: dict[str, Any] = {}
        self._created_names: dict[str, TopicId] = {}
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        """All quotas, as they are now, of each entity whose quotas changed."""

    @classmethod
    def full(cls, image: MetadataImage) -> MetadataDelta:
        """The delta from the empty image to `image`, for a subscriber that comes late."""
        delta = cls(EMPTY_IMAGE)
        for topic in image.topics:
            delta.create_topic(topic.name, topic.id)
            delta.topics[topic.id].changes = dict(topic.partitions)
        delta.configs = {resource: dict(configs) for resource, configs in sorted(image.configs.items())}
        delta.brokers = dict(image.brokers)
        delta.controllers = dict(image.controllers)
        delta.features = dict(image.features)
        delta.next_producer_id = image.next_producer_id
        for entity, quotas in image.client_quotas.items():
            for key, value in quotas.items():
                delta.set_client_quota(entity, key, value)
        delta.scram_credentials = dict(image.scram_credentials)
        delta.acls = dict(image.acls.items())
        delta.delegation_tokens = dict(image.delegation_tokens)
        return delta

    @classmethod
    def between(cls, base: MetadataImage, image: MetadataImage) -> MetadataDelta:
        """The delta between two images, if the records in between are not available (a snapshot)."""
        delta = cls(base)
        for topic in base.topics_by_id.values():
            if topic.id not in image.topics_by_id:
                delta.delete_topic(topic.id)
        for topic in image.topics:
            before = base.topics_by_id.get(topic.id)
            if before is None:
                delta.create_topic(topic.name, topic.id)
                delta.topics[topic.id].changes = dict(topic.partitions)
            elif before.partitions != topic.partitions:
                changes = {n: each for n, each in topic.partitions.items() if before.partitions.get(n) != each}
                delta.topics[topic.id] = TopicDelta(topic.name, topic.id, before)
                delta.topics[topic.id].changes = changes
        resources = sorted({*base.configs, *image.configs})
        configs = {each: _difference(base.configs.get(each, {}), image.configs.get(each, {})) for each in resources}
        delta.configs = {each: changes for each, changes in configs.items() if changes}
        delta.brokers = _difference(base.brokers, image.brokers)
        delta.controllers = _difference(base.controllers, image.controllers)
        delta.features = {name: level or 0 for name, level in _difference(base.features, image.features).items()}
        if base.next_producer_id != image.next_producer_id:
            delta.next_producer_id = image.next_producer_id
        for entity in dict.fromkeys((*base.client_quotas, *image.client_quotas)):
            found = _difference(base.client_quotas.get(entity, {}), image.client_quotas.get(entity, {}))
            for key, value in found.items():
                delta.set_client_quota(entity, key, value)
        delta.scram_credentials = _difference(base.scram_credentials, image.scram_credentials)
        delta.acls = _difference(base.acls, image.acls)
        delta.delegation_tokens = _difference(base.delegation_tokens, image.delegation_tokens)
        return delta

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(
            self.topics
            or self.deleted_topics
            or self.configs
            or self.brokers
            or self.controllers
            or self.features
            or self.next_producer_id is not None
            or self.client_quotas
            or self.scram_credentials
            or self.acls
            or self.delegation_tokens
        )

    def created_topics(self) -> Iterator[TopicDelta]:
        return (topic for topic in self.topics.values() if topic.created)

    def changed_partitions(self) -> Iterator[tuple[TopicDelta, int, PartitionRegistration]]:
        """(topic, partition number, registration now) of every partition that is new or changed."""
        for topic in self.topics.values():
            for number, registration in topic.changes.items():
                yield topic, number, registration

    def ended_brokers(self) -> Iterator[BrokerRegistration]:
        """Brokers of the base image whose incarnation is fenced now, gone, or followed by another one."""
        for node_id, now in self.brokers.items():
            before = self.base.brokers.get(node_id)
            if before is not None and (now is None or now.epoch != before.epoch or (now.fenced and not before.fenced)):
                yield before

    def changed_configs(self, resource_type: int) -> Iterator[str]:
        """Names of the resources of a type whose settings changed."""
        return (resource.name for resource in self.configs if resource.type == resource_type)

    def topic_delta(self, topic_id: TopicId) -> TopicDelta | None:
        """The changes of a topic that exists, begun if there are none yet; None for an unknown topic."""
        delta = self.topics.get(topic_id)
        if delta is None:
            base = self.base.topics_by_id.get(topic_id)
            if base is None or topic_id in self.deleted_topics:
                return None
            delta = self.topics[topic_id] = TopicDelta(base.name, topic_id, base)
        return delta

    def create_topic(self, name: str, topic_id: TopicId) -> None:
        self.topics[topic_id] = TopicDelta(name, topic_id, None)
        self._created_names[name] = topic_id

    def delete_topic(self, topic_id: TopicId) -> str | None:
        """Remove a topic and return its name; None for an unknown one."""
        delta = self.topics.pop(topic_id, None)
        base = self.base.topics_by_id.get(topic_id)
        if base is not None:
            self.deleted_topics[topic_id] = base
            return base.name
        if delta is not None:
            self._created_names.pop(delta.name, None)
            return delta.name
        return None

    def broker(self, node_id: NodeId) -> BrokerRegistration | None:
        """A broker as it is now."""
        if node_id in self.brokers:
            return self.brokers[node_id]
        return self.base.brokers.get(node_id)

    def apply(self, offset: Offset, epoch: LeaderEpoch, timestamp_ms: int) -> MetadataImage:
        """The image after this delta, whose last record is at `offset`."""
        base, index = self.base, self.base.replica_index
        by_name, by_id = base.topics_by_name, base.topics_by_id
        if self.topics or self.deleted_topics:
            with by_name.mutate() as names, by_id.mutate() as ids:
                for topic_id, gone in self.deleted_topics.items():
                    del ids[topic_id]
                    del names[gone.name]
                for topic_id, delta in self.topics.items():
                    ids[topic_id] = names[delta.name] = delta.apply()
                by_name, by_id = names.finish(), ids.finish()
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            cluster_id=base.cluster_id,
            features=_merged(base.features, {name: level or None for name, level in self.features.items()}),
            brokers=_merged(base.brokers, self.brokers),
            controllers=_merged(base.controllers, self.controllers),
            topics_by_name=by_name,
            topics_by_id=by_id,
            configs=self._apply_configs(),
            next_producer_id=base.next_producer_id if self.next_producer_id is None else self.next_producer_id,
            client_quotas=self._apply_quotas(),
            scram_credentials=_merged(base.scram_credentials, self.scram_credentials),
            acls=base.acls.changed(self.acls),
            delegation_tokens=_merged(base.delegation_tokens, self.delegation_tokens),
            replica_index=None if index is None else reindexed(index, self.deleted_topics, self.topics),
        )

    def _apply_configs(self) -> Any:
        configs = self.base.configs
        if not self.configs:
            return configs
        with configs.mutate() as mutable:
            for resource, changes in self.configs.items():
                merged: Configs = _merged(mutable.get(resource, {}), changes)
                if merged:
                    mutable[resource] = merged
                elif resource in mutable:
                    del mutable[resource]
            return mutable.finish()

    def set_client_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """A quota that changed; None for one that was removed."""
        self.client_quotas.setdefault(entity, {})[key] = value
        known = self._quotas.get(entity)
        self._quotas[entity] = _merged(
            self.base.client_quotas.get(entity, {}) if known is None else known, {key: value}
        )

    def _apply_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """In one piece, so it looks at no entity that stays or has quotas."""
        if not self._quotas:
            return self.base.client_quotas
        quotas = {**self.base.client_quotas, **self._quotas}
        for entity in [entity for entity, left in self._quotas.items() if not left]:
            del quotas[entity]
        return quotas


def _difference(base: Mapping[Any, Any], image: Mapping[Any, Any]) -> dict[Any, Any]:
    """The changes that `_merged` needs to get from one to the other."""
    changes = {key: value for key, value in image.items() if key not in base or base[key] != value}
    return {**changes, **{key: None for key in base if key not in image}}


def _merged(base: Mapping[Any, Any], changes: Mapping[Any, Any]) -> Any:
    """`base` itself without changes, else a copy with them; a change to None removes."""
    if not changes:
        return base
    merged = {**base, **changes}
    for key, value in changes.items():
        if value is None:
            del merged[key]
    return merged
