"""Votes: who gives one to whom, what is counted, and how long replicas wait for it all (KIP-595, KIP-996)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from ottla.model import LeaderEpoch, Millis, NodeId, Offset
from ottla.quorum.voters import ReplicaKey, VoterSet

BACKOFF_BASE_MS = 50
"""The first wait after a lost election is up to twice this."""


class Timing(NamedTuple):
    """Times in milliseconds."""

    election_timeout_ms: Millis = 1_000
    """`controller.quorum.election.timeout.ms`: one to two times this without a leader, then an election."""
    fetch_timeout_ms: Millis = 2_000
    """`controller.quorum.fetch.timeout.ms`: so long without an answer of the leader, then an election."""
    election_backoff_ms_max: Millis = 1_000
    """`controller.quorum.election.backoff.max.ms`"""


class LogEnd(NamedTuple):
    """How far a log goes. Of two, the greater has all that can be committed of the other (section 5.4.1 of Raft)."""

    epoch: LeaderEpoch
    """Epoch of the last record."""
    offset: Offset


@dataclass(slots=True)
class Election:
    """Answers to one round of votes or pre-votes, each by node."""

    granted: dict[NodeId, None] = field(default_factory=dict)
    rejected: dict[NodeId, None] = field(default_factory=dict)

    def record(self, node_id: NodeId, *, granted: bool) -> None:
        """The first answer of a voter counts."""
        if node_id not in self.granted and node_id not in self.rejected:
            (self.granted if granted else self.rejected)[node_id] = None

    def is_won(self, voters: VoterSet) -> bool:
        return sum(node_id in voters for node_id in self.granted) >= voters.majority

    def is_lost(self, voters: VoterSet) -> bool:
        """Whether those that have not answered are too few."""
        return len(voters) - sum(node_id in voters for node_id in self.rejected) < voters.majority

    def unanswered(self, voters: VoterSet) -> list[ReplicaKey]:
        return [key for key in voters.keys if key.node_id not in self.granted and key.node_id not in self.rejected]


def election_timeout_ms(timing: Timing, random: Random) -> Millis:
    return timing.election_timeout_ms + round(random.random() * timing.election_timeout_ms)


def backoff_ms(timing: Timing, random: Random, losses: int) -> Millis:
    """After `losses` lost elections in a row, 1 or more: doubles, at random, so that two candidates part."""
    most = BACKOFF_BASE_MS * (2 << min(losses - 1, 20))
    return round(min(most, timing.election_backoff_ms_max) * random.random())


def successor_backoff_ms(timing: Timing, position: int, successors: Sequence[ReplicaKey]) -> Millis:
    """How long the successor at `position` (-1: none of them) lets those before it stand for election."""
    if position == 0:
        return 0
    most = timing.election_backoff_ms_max
    if position < 0:
        return most
    return min(most, (most >> (len(successors) - 1)) << (position - 1))
