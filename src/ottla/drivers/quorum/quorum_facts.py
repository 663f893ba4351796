"""What a replica of the metadata log says when it is asked: who leads, who votes, what is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.drivers.quorum.metadata_log import LoadedBatch, MetadataLog
from ottla.model import LeaderEpoch, NodeId, Offset
from ottla.quorum.core import QuorumCore
from ottla.quorum.leader import Replica
from ottla.quorum.state import Role
from ottla.quorum.voters import Configuration, ReplicaKey


class QuorumInfo(NamedTuple):
    """The state of the metadata quorum, for DescribeQuorum and metrics."""

    leader_id: NodeId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: Sequence[Replica]
    observers: Sequence[Replica]


class QuorumFacts:
    """A replica, for those that only ask it. `QuorumNode` is one."""

    core: QuorumCore
    log: MetadataLog

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def is_active(self) -> bool:
        """Whether this node leads and everything that its log had before is committed."""
        return self.core.is_active

    @property
    def alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.core.alone

    @property
    def leader_id(self) -> NodeId:
        """-1 while there is none."""
        return self.core.leader_id

    @property
    def epoch(self) -> LeaderEpoch:
        return self.core.epoch

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed; -1 while this is not known."""
        return self.core.high_watermark

    @property
    def end_offset(self) -> Offset:
        return self.core.end_offset

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Epoch of the last record; 0 for an empty log."""
        newest = self.log.newest_snapshot
        return max(self.log.log.latest_epoch or 0, 0 if newest is None else newest.epoch)

    @property
    def voters(self) -> list[ReplicaKey]:
        return self.core.voters.keys

    @property
    def kraft_version(self) -> int:
        return self.core.kraft_version

    @property
    def committed(self) -> Configuration:
        """The committed voters: no truncation changes them."""
        return self.core.configurations.entries[0]

    @property
    def role(self) -> Role:
        return self.core.role

    def follows(self, leader_id: NodeId, epoch: LeaderEpoch) -> bool:
        core = self.core
        return core.role is Role.FOLLOWER and (core.leader_id, core.epoch) == (leader_id, epoch)

    def committed_snapshot(self) -> Iterator[LoadedBatch]:
        """The newest snapshot, which is committed by its nature. Raises OttlaError."""
        return self.log.load_snapshot()

    def read_committed(self, position: Offset) -> Iterator[LoadedBatch]:
        """The batches from `position` up to the high watermark. Raises OttlaError."""
        return self.log.load_log(max(position, self.log.log.log_start_offset), self.core.high_watermark)

    def read_to_be_committed(self, position: Offset) -> Iterator[LoadedBatch]:
        """The batches from `position` that are committed, or will be as soon as this node leads, for nobody else votes.
        Raises OttlaError."""
        end = self.log.log.log_end_offset if self.core.alone else self.core.high_watermark
        return self.log.load_log(max(position, self.log.log.log_start_offset), end)
