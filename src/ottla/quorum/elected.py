"""A replica of the metadata log whose leader ZooKeeper elects, and whose records ZooKeeper commits.

The log is a copy of what stands in ZooKeeper, made for brokers to follow. Nobody votes: the driver says who holds
`/controller`, with the controller epoch as the epoch of the log, and up to which record the leader has written what its
log says as znodes. A new leader begins its epoch with a snapshot of the tree, at an offset that no earlier epoch can
have reached, so that no log ever has to be compared with another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.model import LeaderEpoch, Millis, NodeId, Offset
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.protocol.schemas.records import LeaderChangeMessage, VoterEndpoint
from ottla.quorum.core import QuorumCore
from ottla.quorum.leader import Leadership, Replica
from ottla.quorum.snapshot import SnapshotId
from ottla.quorum.state import Ready, Role
from ottla.quorum.voters import ReplicaKey, VoterSet

OFFSETS_PER_EPOCH_BITS = 32
"""An epoch has room for four thousand million records. A controller epoch is an int32, so offsets stay below 2^63."""


def first_snapshot(epoch: LeaderEpoch) -> SnapshotId:
    """The snapshot of the tree that an epoch begins with."""
    return SnapshotId(epoch << OFFSETS_PER_EPOCH_BITS, epoch)


@dataclass(slots=True)
class ElectedCore(QuorumCore):
    """Invariants: as leader the high watermark passes nothing that is not written to ZooKeeper; an epoch has one
    leader, since ZooKeeper raises the controller epoch with each. The log need not be on disk for that: whoever leads
    next reads the tree."""

    written: Offset = -1
    """As leader: everything below is written to ZooKeeper."""

    @property
    def voters(self) -> VoterSet:
        """The leader alone: its copy is the one that others follow."""
        return VoterSet.of([ReplicaKey(self.leader_id)] if self.leader_id >= 0 else [])

    @property
    def is_voter(self) -> bool:
        return self.is_leader

    @property
    def alone(self) -> bool:
        """Never: other brokers may come at any time."""
        return False

    def elected(self, epoch: LeaderEpoch) -> Ready:
        """This node holds `/controller`, and its log is the snapshot that `epoch` begins with. Raises ValueError for an
        epoch that is not newer, or another log."""
        if epoch <= self.epoch:
            raise ValueError(f"elected in epoch {epoch}, but the log has seen epoch {self.epoch}")
        if self.end_offset != first_snapshot(epoch).end_offset:
            raise ValueError(f"epoch {epoch} begins at {first_snapshot(epoch).end_offset}, not at {self.end_offset}")
        self.role = Role.LEADER
        self.stored = self._state(epoch, leader_id=self.node_id)
        own = Replica(self.me)
        self.leadership = Leadership(self.me, self.end_offset, {self.node_id: own}, check_quorum_ms=0)
        self.deadline_ms = None
        self.written = self.end_offset
        self._control = (LeaderChangeMessage(0, self.node_id, (), ()),)
        return self._ready()

    def led(self, leader_id: NodeId, epoch: LeaderEpoch, now: Millis) -> Ready:
        """ZooKeeper says that another node holds `/controller`."""
        if epoch > self.epoch:
            self._adopt(epoch, now)
        if epoch == self.epoch and leader_id != self.node_id and self.role is not Role.LEADER:
            self._attach(leader_id, now)
        return self._ready()

    def on_written(self, end_offset: Offset) -> Ready:
        """What the log has below `end_offset` is in ZooKeeper; the record of an election is of the log alone."""
        if self.leadership is not None:
            self.written = max(self.written, end_offset)
            self._advance()
        return self._ready()

    def start(self, now: Millis, endpoints: Sequence[VoterEndpoint] = ()) -> Ready:
        """The log is open; who leads is not known yet."""
        self.stored = self._state(max(self.last_epoch, self.epoch))
        return self._ready()

    def on_flushed(self, end_offset: Offset, now: Millis) -> Ready:
        return self._ready()

    def _advance(self) -> None:
        reached = min(self.end_offset, self.written)
        if self._may_commit(reached):
            self._commit(reached)

    def _resign(self, now: Millis) -> None:
        self.role, self.leadership = Role.UNATTACHED, None
        self.stored = self._state(self.epoch)
        self.deadline_ms = None

    def _state(self, epoch: LeaderEpoch, *, leader_id: NodeId = -1, voted: ReplicaKey | None = None) -> QuorumStateFile:
        return QuorumStateFile(leader_id=leader_id, leader_epoch=epoch)
