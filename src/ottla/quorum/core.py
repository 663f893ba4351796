"""One voter of the metadata quorum: who leads in which epoch, and what is committed (KRaft, KIP-595).

The core does no input or output. Its methods take what happened and return a `Ready`: what must be done, in this
order: persist the quorum state (fsynced, before anything that depends on it leaves the node), append the control
records, sync the log and report that with `on_flushed`. What this version lacks of Raft, because its quorums have one
voter, is the exchange of votes and the following of another leader; the rules for epochs, votes and the high
watermark are the full ones.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ottla.model import ZERO_UUID, LeaderEpoch, Millis, NodeId, Offset
from ottla.protocol.internal.quorum_records import LeaderChangeMessage, LeaderChangeVoter, QuorumStateFile


class Role(enum.Enum):
    """A voter's part in the current epoch."""

    UNATTACHED = "unattached"
    """Knows of no leader."""
    CANDIDATE = "candidate"
    """Voted for itself and waits for a majority."""
    LEADER = "leader"
    RESIGNED = "resigned"
    """Led this epoch and gave it up; it may not lead it again."""


@dataclass(slots=True)
class Replica:
    """What the leader knows of one replica of the log."""

    node_id: NodeId
    directory_id: UUID = ZERO_UUID
    end_offset: Offset = -1
    """Everything below is on its disk; -1 while unknown. Never decreases within an epoch."""
    last_fetch_ms: Millis = -1
    last_caught_up_ms: Millis = -1


class Ready(NamedTuple):
    """Effects of a step, to be carried out in the order of the fields."""

    persist: QuorumStateFile | None = None
    control_records: Sequence[Any] = ()
    """To append as one control batch in the current epoch, and to fsync before anything else is appended."""
    high_watermark: Offset | None = None
    """Set when it advanced: everything below may be applied and answered."""


NOTHING = Ready()


@dataclass(slots=True)
class QuorumCore:
    """State of one voter. Invariants: `epoch` never decreases; at most one vote per epoch; as leader, only records
    of its own epoch move the high watermark, and it never decreases."""

    node_id: NodeId
    voters: dict[NodeId, Replica]
    stored: QuorumStateFile
    """As last persisted."""
    end_offset: Offset
    """Log end of this node, fsynced or not."""
    kraft_version: int = 0
    role: Role = Role.UNATTACHED
    high_watermark: Offset = -1
    """-1 until a record of this leader's epoch is on a majority."""
    epoch_start: Offset = -1
    """Offset of the LeaderChangeMessage of the epoch that this node leads."""
    observers: dict[NodeId, Replica] = field(default_factory=dict)

    @property
    def epoch(self) -> LeaderEpoch:
        return max(self.stored.leader_epoch, 0)

    @property
    def leader_id(self) -> NodeId:
        return self.node_id if self.role is Role.LEADER else -1

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def campaign(self, last_epoch: LeaderEpoch) -> Ready:
        """Stand for election. `last_epoch` is that of the last record of the log, which may be ahead of a lost or
        older quorum-state file: an epoch once used is never used again."""
        if self.node_id not in self.voters:
            raise ValueError(f"node {self.node_id} is no voter among {sorted(self.voters)}")
        self.role = Role.CANDIDATE
        epoch = max(self.stored.leader_epoch, last_epoch, 0) + 1
        if self.majority > 1:
            self.stored = self._state(epoch, voted_id=self.node_id)
            return Ready(persist=self.stored)
        return self._lead(epoch, granting=(self.node_id,))

    def _lead(self, epoch: LeaderEpoch, granting: Sequence[NodeId]) -> Ready:
        self.role = Role.LEADER
        self.stored = self._state(epoch, leader_id=self.node_id)
        self.epoch_start = self.end_offset
        for replica in self.voters.values():
            replica.end_offset = -1
        version = 1 if self.kraft_version >= 1 else 0
        voters = {
            node_id: LeaderChangeVoter(node_id, replica.directory_id if version else ZERO_UUID)
            for node_id, replica in self.voters.items()
        }
        change = LeaderChangeMessage(
            version, self.node_id, tuple(voters.values()), tuple(voters[node_id] for node_id in granting)
        )
        return Ready(persist=self.stored, control_records=(change,))

    def _state(self, epoch: LeaderEpoch, *, leader_id: NodeId = -1, voted_id: NodeId = -1) -> QuorumStateFile:
        dynamic = self.kraft_version >= 1
        return QuorumStateFile(
            leader_id=leader_id,
            leader_epoch=epoch,
            voted_id=voted_id,
            voted_directory_id=self.voters[voted_id].directory_id if dynamic and voted_id >= 0 else ZERO_UUID,
            voters=() if dynamic else tuple(self.voters),
            data_version=1 if dynamic else 0,
        )

    def on_appended(self, end_offset: Offset) -> None:
        """The log of this node now ends at `end_offset`."""
        if end_offset < self.end_offset:
            raise ValueError(f"log end moved back from {self.end_offset} to {end_offset}")
        self.end_offset = end_offset

    def on_flushed(self, end_offset: Offset, now: Millis) -> Ready:
        """Everything below `end_offset` is on this node's disk. Only then does this node count in the majority."""
        return self._advance(self.voters[self.node_id], end_offset, now)

    def on_fetch(self, node_id: NodeId, end_offset: Offset, now: Millis) -> Ready:
        """Another replica asks for what follows `end_offset`, so it has all below on its disk."""
        replica = self.voters.get(node_id)
        if replica is None:
            replica = self.observers.setdefault(node_id, Replica(node_id))
        return self._advance(replica, end_offset, now)

    def _advance(self, replica: Replica, end_offset: Offset, now: Millis) -> Ready:
        if self.role is not Role.LEADER:
            return NOTHING
        if end_offset > self.end_offset:
            raise ValueError(f"replica {replica.node_id} claims {end_offset}, the log ends at {self.end_offset}")
        replica.end_offset = max(replica.end_offset, end_offset)
        replica.last_fetch_ms = now
        if end_offset == self.end_offset:
            replica.last_caught_up_ms = now
        ends = sorted((voter.end_offset for voter in self.voters.values()), reverse=True)
        reached = ends[self.majority - 1]
        # A majority with older records only proves nothing (section 5.4.2 of the Raft paper).
        if reached <= self.epoch_start or reached <= self.high_watermark:
            return NOTHING
        self.high_watermark = reached
        return Ready(high_watermark=reached)

    def resign(self) -> None:
        """Give up leadership for the rest of this epoch."""
        if self.role is Role.LEADER:
            self.role = Role.RESIGNED

    def replicas(self) -> Mapping[NodeId, Replica]:
        return self.voters
