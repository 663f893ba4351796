"""What the group coordinator's driver needs of the node that it runs on; `ottla.server.node.Node` gives it."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from ottla.clock import Clock
from ottla.config.typed import TypedSettings
from ottla.filesystem import FileSystem
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metrics.instruments import NodeMetrics
from ottla.model import NodeId, TopicPartition
from ottla.replication.partition import Partition


class PublishedMetadata(Protocol):
    """Tells of every change that is committed."""

    def subscribe(self, callback: Callable[[MetadataDelta, MetadataImage], None], /) -> None: ...


class LedPartitions(Protocol):
    """The partitions of the node."""

    @property
    def on_leadership(self) -> list[Callable[[Partition], None]]:
        """Called with each partition whose leadership or leader epoch changed."""

    @property
    def missing(self) -> Collection[TopicPartition]:
        """Partitions that should be here, whose logs cannot be used."""

    def __iter__(self) -> Iterator[Partition]: ...


class CoordinatorHost(Protocol):
    @property
    def node_id(self) -> NodeId: ...
    @property
    def config(self) -> TypedSettings: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def fs(self) -> FileSystem: ...
    @property
    def random(self) -> random_module.Random: ...
    @property
    def metrics(self) -> NodeMetrics: ...
    @property
    def replicas(self) -> LedPartitions: ...
    @property
    def lost(self) -> Mapping[NodeId, int]:
        """Brokers whose process seems to be gone, with the epochs of these incarnations."""

    @property
    def on_stop(self) -> list[Callable[[], None]]:
        """Called when the node begins to stop."""
