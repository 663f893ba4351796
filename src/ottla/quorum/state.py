"""What a replica of the metadata log knows of its quorum, and the words for it: roles, effects, requests.

`core.py` has the transitions: nothing here changes anything.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from ottla.model import ZERO_UUID, LeaderEpoch, Millis, NodeId, Offset
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.protocol.schemas.records import Voter
from ottla.quorum.election import Election, LogEnd, Timing
from ottla.quorum.epochs import EPOCH_LAST, EPOCHS_AHEAD_MAX, EpochLimit
from ottla.quorum.leader import Leadership, Replica
from ottla.quorum.voters import Configurations, ReplicaKey, VoterSet


class Role(enum.Enum):
    """A replica's part in the current epoch."""

    UNATTACHED = "unattached"
    """Follows nobody: waits for a leader or for its election timeout."""
    PROSPECTIVE = "prospective"
    """Asks whether it would be elected before it begins an epoch (KIP-996)."""
    CANDIDATE = "candidate"
    """Voted for itself and waits for a majority."""
    FOLLOWER = "follower"
    """Copies the log of the leader, as a voter or as an observer."""
    LEADER = "leader"
    RESIGNED = "resigned"
    """Led this epoch and gave it up; it may not lead it again."""


class Ready(NamedTuple):
    """Effects of a step, to be carried out in the order of the fields."""

    persist: QuorumStateFile | None = None
    """Fsynced before anything that depends on it leaves the node: an answer, a request, a record."""
    control_records: Sequence[Any] = ()
    """Control records to append as one batch in the current epoch, and to fsync before anything else is appended."""
    high_watermark: Offset | None = None
    """Set when it advanced: everything below may be applied and answered."""


NOTHING = Ready()


class VoteRequest(NamedTuple):
    """Ask for a vote, or whether it would be given. To be sent until there is an answer or another role."""

    to: ReplicaKey
    epoch: LeaderEpoch
    last_epoch: LeaderEpoch
    end_offset: Offset
    pre_vote: bool


class BeginRequest(NamedTuple):
    """Tells that this node leads."""

    to: ReplicaKey
    epoch: LeaderEpoch


class EndRequest(NamedTuple):
    """Tells that this node no longer leads."""

    to: ReplicaKey
    epoch: LeaderEpoch
    successors: tuple[ReplicaKey, ...]
    """Preferred successors: the replica with most of the log first."""


Request = VoteRequest | BeginRequest | EndRequest


ELECTING = (Role.PROSPECTIVE, Role.CANDIDATE)


@dataclass(slots=True)
class ReplicaState:
    """The state of a replica between two steps, and what follows from it."""

    me: ReplicaKey
    configurations: Configurations
    stored: QuorumStateFile
    """The state last handed out to be persisted, or about to be."""
    end_offset: Offset
    """Log end of this node, fsynced or not. Goes back only in `on_truncated`, never below the high watermark."""
    last_epoch: LeaderEpoch
    """Epoch of the last record of the log; 0 for an empty log."""
    random: Random
    timing: Timing
    can_vote: bool = True
    """Whether this node may become a voter: it has the role controller."""
    own: Voter | None = None
    """This node as a voter; None if no other node can reach it."""
    role: Role = Role.UNATTACHED
    high_watermark: Offset = -1
    """-1 until it is known what a majority has."""
    deadline_ms: Millis | None = None
    """When `on_timeout` does something; None for never."""
    election: Election | None = None
    """Set while prospective or candidate."""
    leadership: Leadership | None = None
    """Set while leader."""
    has_fetched: bool = False
    """As follower: whether the leader of this epoch has answered, so that an election now would disturb."""
    ended: LeaderEpoch = -1
    """The newest epoch whose leader has resigned: its earlier answers no longer count."""
    losses: int = 0
    """Elections lost since there was a leader."""
    resigned_to: tuple[ReplicaKey, ...] = ()
    """Preferred successors, while resigned."""
    unacknowledged: dict[NodeId, ReplicaKey] = field(default_factory=dict)
    """Replicas that have not acknowledged the resignation yet, while resigned."""
    limit: EpochLimit = field(default_factory=EpochLimit)
    """Decides which later epochs of other nodes are adopted."""

    @property
    def node_id(self) -> NodeId:
        return self.me.node_id

    @property
    def epoch(self) -> LeaderEpoch:
        return max(self.stored.leader_epoch, 0)

    @property
    def leader_id(self) -> NodeId:
        """-1 while nobody is known to lead."""
        if self.role is Role.LEADER:
            return self.node_id
        return self.stored.leader_id if self.stored.leader_id != self.node_id else -1

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_active(self) -> bool:
        """Leads, and has committed the first record of its epoch: nothing before can change any more."""
        return self.leadership is not None and self.high_watermark > self.leadership.epoch_start

    @property
    def voters(self) -> VoterSet:
        return self.configurations.newest.voters

    @property
    def kraft_version(self) -> int:
        return self.configurations.newest.kraft_version

    @property
    def is_voter(self) -> bool:
        return self.can_vote and self.voters.find(self.me) is not None

    @property
    def may_stand(self) -> bool:
        """Also a voter of before while the others may lack its removal, and need its vote (Raft thesis, 4.2.2)."""
        return self.can_vote and self.configurations.may_name(self.me)

    @property
    def alone(self) -> bool:
        """Whether this node is the only voter."""
        return len(self.voters) == 1 and self.is_voter

    @property
    def log_end(self) -> LogEnd:
        return LogEnd(self.last_epoch, self.end_offset)

    def next_request_ms(self, busy: Container[NodeId]) -> Millis | None:
        """When to look at `requests`, should nothing happen before, but not at those to `busy` voters; None: never."""
        return None if self.leadership is None or self.alone else self.leadership.next_begin_ms(busy)

    def requests(self, now: Millis) -> list[Request]:
        """Requests that this node wants to send now: repeated until they are answered or no longer wanted."""
        voters = self.voters
        if self.role in ELECTING and self.election is not None:
            pre_vote = self.role is Role.PROSPECTIVE
            return [
                VoteRequest(key, self.epoch, self.last_epoch, self.end_offset, pre_vote)
                for key in self.election.unanswered(voters)
            ]
        if self.leadership is not None:
            replicas = self.leadership.voters
            return [
                BeginRequest(key, self.epoch)
                for key in voters.keys
                if key.node_id != self.node_id and replicas[key.node_id].begin_due_ms <= now
            ]
        if self.role is Role.RESIGNED:
            return [EndRequest(key, self.epoch, self.resigned_to) for key in self.unacknowledged.values()]
        return []

    def grants(self, candidate: ReplicaKey, log_end: LogEnd, *, pre_vote: bool) -> bool:
        """Whether this node votes for `candidate` in the current epoch, or would."""
        if not self._is_up_to_date(log_end):
            return False  # the candidate may lack committed records (Raft, 5.4.1)
        if self.role is Role.LEADER:
            return False  # it has voted for itself
        if pre_vote:
            return not (self.role is Role.FOLLOWER and self.has_fetched)  # its leader is alive (KIP-996)
        # One vote an epoch, again for a repeated request (Raft, 5.2); none where the epoch has a leader.
        if self.stored.voted_id >= 0:
            return self._voted_for(candidate)
        return self.stored.leader_id < 0

    def _is_up_to_date(self, log_end: LogEnd) -> bool:
        return log_end >= self.log_end

    def _voted_for(self, candidate: ReplicaKey) -> bool:
        directory = self.stored.voted_directory_id
        return self.stored.voted_id == candidate.node_id and directory in (ZERO_UUID, candidate.directory_id)

    def believes(self, epoch: LeaderEpoch, now: Millis) -> bool:
        """Whether this replica would adopt an epoch, were it a later one. An observer without anything on its disk
        believes what it is told, as nobody counts on it."""
        if epoch <= self.epoch or self.limit.allows(self.epoch, epoch, now):
            return True
        knows_nothing = self.epoch == self.end_offset == 0 and not self.is_voter
        return knows_nothing and epoch <= EPOCH_LAST - EPOCHS_AHEAD_MAX

    @property
    def is_far_ahead(self) -> bool:
        """Whether the epoch is further ahead of the log than elections without a record can have brought it."""
        return self.epoch > self.last_epoch + EPOCHS_AHEAD_MAX

    def described(self, now: Millis, ahead: Millis = 0) -> tuple[Sequence[Replica], Sequence[Replica]]:
        """(voters, observers) as the leader sees them, with times by a clock that is `ahead` of `now`'s; others know no
        more than who votes."""
        if self.leadership is None:
            return [Replica(key) for key in self.voters.keys], []
        return self.leadership.described(now, ahead)
