"""A node and its replicas as they were when they were last looked at, which is behind each of its events: compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.metadata.image import MetadataImage
from ottla.model import TopicPartition
from ottla.replication.partition import Partition
from ottla.server.replicas.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from ottla.server.node import Node

State = tuple[int, int, bool, int]
"""Leader epoch, partition epoch, whether it leads, high watermark."""

UNSEEN: State = (-1, -1, False, 0)


class SeenReplica:
    __slots__ = ("_committed", "_leader_epoch", "_leads", "_partition_epoch", "partition", "state")

    def __init__(self, partition: Partition, state: State) -> None:
        self.partition = partition
        self.state = state
        self._leader_epoch, self._partition_epoch, self._leads, self._committed = state
        if state is UNSEEN:
            self._leader_epoch = -2  # which none is in

    def note(self, state: State) -> None:
        self.state = state
        self._leader_epoch, self._partition_epoch, self._leads, self._committed = state

    def has_changed(self, serves: bool) -> bool:
        partition = self.partition
        return (
            partition.log.high_watermark != self._committed
            or partition.leader_epoch != self._leader_epoch
            or partition.partition_epoch != self._partition_epoch
            or (serves and partition.is_leader) != self._leads
        )


class SeenReplicas:
    """All replicas of a node, listed again only when others came or went."""

    __slots__ = ("_states", "generation", "rows")

    def __init__(self) -> None:
        self.generation = -1
        self.rows: list[SeenReplica] = []
        self._states: dict[TopicPartition, State] = {}

    def relist(self, replicas: ReplicaManager) -> None:
        self._states.update((row.partition.topic_partition, row.state) for row in self.rows)
        self.rows = [SeenReplica(each, self._states.get(each.topic_partition, UNSEEN)) for each in replicas]
        self.generation = replicas.generation

    def changed(self, serves: bool) -> list[SeenReplica]:
        """The replicas of which something changed. A node that does not serve leads nothing: what it knows is old."""
        return [row for row in self.rows if row.has_changed(serves)]

    def is_same(self, serves: bool) -> bool:
        """Whether `changed` would find nothing."""
        for row in self.rows:  # noqa: SIM110 - compiled, it is no generator
            if row.has_changed(serves):
                return False
        return True


class SeenNode:
    """One process of a node. What is compared by identity is replaced, not changed."""

    __slots__ = (
        "_core", "_high_watermark", "_image", "_newest", "_node", "_publisher", "_replicas", "_role", "_stored",
        "replicas",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        self.replicas = SeenReplicas()
        self._node = node
        self._core = node.metadata.quorum.core
        self._publisher = node.metadata.publisher
        self._replicas = node.replicas
        self._stored: Any = None
        self._role: Any = None
        self._high_watermark: Any = None
        self._newest: Any = None
        self._image: MetadataImage | None = None

    def note(self) -> None:
        """All of it was looked at."""
        core = self._core
        self._stored, self._role, self._high_watermark = core.stored, core.role, core.high_watermark
        self._newest, self._image = core.configurations.newest, self._publisher.image

    def is_same(self, serves: bool) -> bool:
        """Whether nothing has changed since then, and no log is known to be damaged."""
        core = self._core
        if (
            core.stored is not self._stored
            or core.role is not self._role
            or core.high_watermark != self._high_watermark
            or core.configurations.newest is not self._newest
            or self._publisher.image is not self._image
            or self._replicas.generation != self.replicas.generation
            or not self.replicas.is_same(serves)
        ):
            return False
        damaged_logs = self._node.__dict__.get("damaged_logs")  # made with the first records
        return damaged_logs is None or not damaged_logs.damaged()
