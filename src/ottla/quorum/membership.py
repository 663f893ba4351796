"""What a replica asks the leader to change about the voters for its own sake (`KafkaRaftClient.pollFollower`, KIP-853).

A voter whose address or supported versions are others than the log says tells so, and each voter of a static quorum
tells every leader, which has to know it for an upgrade of `kraft.version`. An observer that is to join the voters by
itself (KIP-1186) asks to be one, and before that to let an older one go that has its node id and another directory.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.model import LeaderEpoch
from ottla.protocol.schemas.records import Voter
from ottla.quorum.core import QuorumCore
from ottla.quorum.state import Role
from ottla.quorum.voters import ReplicaKey, says_the_same


class Add(NamedTuple):
    """Let this replica vote."""

    voter: Voter


class Remove(NamedTuple):
    """Let an older replica of this node vote no more."""

    key: ReplicaKey


class Update(NamedTuple):
    """Note where this voter is reached."""

    voter: Voter


Change = Add | Remove | Update


def wanted_change(core: QuorumCore, *, joins: bool, told: LeaderEpoch) -> Change | None:
    """What to ask the leader for now. `joins`: whether an observer is to become a voter; `told`: the last epoch whose
    leader was told of this voter."""
    own = core.own
    if core.role is not Role.FOLLOWER or not core.can_vote or own is None:
        return None
    if core.is_voter:
        if core.kraft_version < 1:
            return Update(own) if told < core.epoch else None
        listed = core.voters.get(core.node_id)
        return None if listed is None or says_the_same(listed, own) else Update(own)
    if not joins or core.kraft_version < 1:
        return None
    older = core.voters.get(core.node_id)
    return Add(own) if older is None else Remove(ReplicaKey(older.voter_id, older.voter_directory_id))
