"""The vocabulary of the quorum's core: roles, timing, what it asks for, what it wants to say to other voters."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.model import LeaderEpoch, Millis, Offset
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.quorum.voters import ReplicaKey


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


class Timing(NamedTuple):
    """Times in milliseconds."""

    election_timeout_ms: Millis = 1_000
    """`controller.quorum.election.timeout.ms`: one to two times this without a leader, then an election."""
    fetch_timeout_ms: Millis = 2_000
    """`controller.quorum.fetch.timeout.ms`: so long without an answer of the leader, then an election."""
    election_backoff_ms_max: Millis = 1_000
    """`controller.quorum.election.backoff.max.ms`"""


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
