"""The replicas of a node as they were when they were last looked at, which is behind each of its events: compiled."""

from __future__ import annotations

from ottla.model import TopicPartition
from ottla.replication.partition import Partition
from ottla.server.replica_manager import ReplicaManager

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
        found = []
        for row in self.rows:
            partition = row.partition
            if (
                partition.log.high_watermark != row._committed
                or partition.leader_epoch != row._leader_epoch
                or partition.partition_epoch != row._partition_epoch
                or (serves and partition.is_leader) != row._leads
            ):
                found.append(row)
        return found
