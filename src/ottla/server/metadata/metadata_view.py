"""Where partitions are, as a client on one listener may see it: brokers that it can reach, replicas that are offline.

Shared by Metadata, DescribeTopicPartitions and DescribeCluster (Kafka's `KRaftMetadataCache`).
"""

from __future__ import annotations

import random as random_module
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.metadata.image import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from ottla.model import NodeId

if TYPE_CHECKING:
    from ottla.drivers.metadata.away_brokers import AwayBrokers
    from ottla.protocol.schemas.sent import DescribeTopicPartitionsResponsePartition

NO_CONTROLLER = -1

NOBODY: Mapping[NodeId, int] = MappingProxyType({})

OPERATIONS_NOT_ASKED = -(2**31)
"""Value of the operations when the request did not ask for them."""


class Broker(NamedTuple):
    """A broker as one listener's clients reach it."""

    id: NodeId
    host: str
    port: int
    rack: str | None
    fenced: bool
    """Fenced by the controller, or about to be: its process seems to be gone."""


class MetadataView:
    """The view from one listener of one image. Cheap to make: per request."""

    __slots__ = ("_directories", "_offline", "alive", "away", "image", "listener", "lost")

    def __init__(
        self, image: MetadataImage, listener: str, lost: Mapping[NodeId, int] = NOBODY, away: AwayBrokers | None = None
    ) -> None:
        """`lost` are brokers whose process seems to be gone: the epochs of these incarnations, by id. `away` says which
        fenced brokers are listed."""
        self.image = image
        self.listener = listener
        self.lost = lost
        self.away = away
        self.alive = {broker.id: broker for broker in self.brokers() if not broker.fenced}
        self._directories: dict[NodeId, frozenset[UUID]] = {
            node_id: _online(image.brokers[node_id]) for node_id in self.alive
        }
        self._offline: dict[tuple[tuple[NodeId, ...], tuple[UUID, ...]], tuple[NodeId, ...]] = {}

    def brokers(self) -> Iterator[Broker]:
        """Registered brokers with this listener, fenced ones too, in order of their ids."""
        for node_id, broker in sorted(self.image.brokers.items()):
            endpoint = broker.endpoints.get(self.listener)
            if endpoint is not None:
                fenced = broker.fenced or self.lost.get(node_id) == broker.epoch
                yield Broker(node_id, endpoint.host, endpoint.port, broker.rack, fenced)

    def listed(self) -> Iterator[Broker]:
        """The brokers for clients of Metadata: those that are alive, those whose process has just gone, and those that
        are away for a while (`AwayBrokers`). Nothing is led there, as far as the same answer says."""
        for broker in self.brokers():
            is_away = broker.fenced and self.image.brokers[broker.id].fenced
            if not is_away or (self.away is not None and self.away.lists(broker.id)):
                yield broker

    def controller_id(self, random: random_module.Random) -> NodeId:
        """A broker to send a controller's requests to: any that is alive passes them on (KIP-590)."""
        return random.choice(list(self.alive)) if self.alive else NO_CONTROLLER

    def leader_id(self, partition: PartitionRegistration) -> NodeId:
        """The leader if it can be reached, else -1."""
        return partition.leader if partition.leader in self.alive else -1

    def offline(self, partition: PartitionRegistration) -> tuple[NodeId, ...]:
        """Replicas whose broker cannot be reached or whose log directory is gone (KIP-858)."""
        key = partition.replicas, partition.directories
        found = self._offline.get(key)
        if found is None:
            found = self._offline[key] = tuple(
                replica for replica in partition.replicas if not self._has(replica, partition.directory(replica))
            )
        return found

    def _has(self, replica: NodeId, directory: UUID) -> bool:
        directories = self._directories.get(replica)
        return directories is not None and (not directories or directory in directories)

    def partition(self, number: int, partition: PartitionRegistration) -> DescribeTopicPartitionsResponsePartition:
        """The fields of a partition that both APIs have."""
        return {
            "partition_index": number,
            "leader_id": self.leader_id(partition),
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "offline_replicas": self.offline(partition),
        }


def _online(broker: BrokerRegistration) -> frozenset[UUID]:
    """The directory ids under which a replica on the broker counts as online; empty if it registered none, for any."""
    if not broker.log_dirs:
        return frozenset()
    return frozenset({*broker.log_dirs, DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING} - {DIRECTORY_LOST})
