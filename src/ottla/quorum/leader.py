"""What the leader of an epoch knows of the replicas of its log (`LeaderState` in Kafka)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from ottla.model import Millis, NodeId, Offset
from ottla.protocol.schemas.records import Voter
from ottla.quorum.voters import ReplicaKey, VoterSet

OBSERVER_EXPIRY_MS = 300_000
"""An observer that has not fetched for so long is gone (`LeaderState.OBSERVER_SESSION_TIMEOUT_MS`)."""

CHECK_QUORUM_FACTOR = 1.5
"""A leader to which no majority has come for so many fetch timeouts resigns."""


@dataclass(slots=True)
class Replica:
    """A replica of the log, as the leader knows it. Times are those of the caller."""

    key: ReplicaKey
    end_offset: Offset = -1
    """Everything below is on its disk; -1 while unknown. Never decreases within an epoch."""
    last_fetch_ms: Millis = -1
    last_caught_up_ms: Millis = -1
    begin_due_ms: Millis = 0
    """When it is to be told (again) who leads; a replica that fetches knows."""


@dataclass(slots=True)
class Leadership:
    """State of a leader in one epoch. Invariant: `voters` has exactly the voters of the newest configuration."""

    me: ReplicaKey
    epoch_start: Offset
    """Offset of the LeaderChangeMessage of the epoch."""
    voters: dict[NodeId, Replica]
    check_quorum_ms: Millis
    """When the leader resigns, unless a majority fetches before."""
    observers: dict[ReplicaKey, Replica] = field(default_factory=dict)
    fetched: dict[NodeId, None] = field(default_factory=dict)
    """Voters that have fetched since `check_quorum_ms` was set."""
    said: dict[NodeId, Voter] = field(default_factory=dict)
    """The voters' own descriptions in a static quorum: its log has no place for them before an upgrade."""

    def replica(self, key: ReplicaKey, voters: VoterSet, now: Millis) -> Replica:
        """The state of a replica that fetches."""
        if voters.find(key) is not None:
            found = self.voters[key.node_id]
            found.key = key  # of a static voter the directory was not known
            return found
        for gone in [each for each, state in self.observers.items() if state.last_fetch_ms + OBSERVER_EXPIRY_MS < now]:
            del self.observers[gone]
        return self.observers.setdefault(key, Replica(key))

    def set_voters(self, voters: VoterSet, now: Millis) -> None:
        """Others vote: what is known of a replica stays known."""
        known = {**{each.key: each for each in self.voters.values()}, **self.observers}
        chosen: dict[NodeId, Replica] = {}
        for key in voters.keys:
            same_node = self.voters.get(key.node_id)
            found = known.get(key)
            if found is None and same_node is not None and voters.find(same_node.key) is not None:
                found = same_node
            chosen[key.node_id] = found or Replica(key, begin_due_ms=now)
        taken = {each.key for each in chosen.values()}
        self.voters = chosen
        self.observers = {
            key: each for key, each in known.items() if key not in taken and key != self.me and each.last_fetch_ms >= 0
        }
        self.fetched = {node_id: None for node_id in self.fetched if node_id in chosen}

    def next_begin_ms(self, busy: Container[NodeId]) -> Millis | None:
        """When the next voter is to be told who leads, apart from `busy` ones; None for never."""
        others = (id_ for id_ in self.voters if id_ != self.me.node_id and id_ not in busy)
        return min((self.voters[id_].begin_due_ms for id_ in others), default=None)

    def reached(self, majority: int) -> Offset:
        """The offset up to which a majority of the voters has the log on disk
        (`LeaderState.maybeUpdateHighWatermark`)."""
        ends = sorted((each.end_offset for each in self.voters.values()), reverse=True)
        return ends[majority - 1]

    def note_fetch(self, replica: Replica, end_offset: Offset, log_end: Offset, now: Millis) -> None:
        replica.end_offset = max(replica.end_offset, end_offset)  # a late fetch lowers nothing
        replica.last_fetch_ms = now
        if end_offset == log_end:
            replica.last_caught_up_ms = now

    def hear_voter(self, node_id: NodeId, majority: int, now: Millis, fetch_timeout_ms: Millis) -> None:
        """A voter asked for records or a snapshot, so it follows this leader."""
        self.voters[node_id].begin_due_ms = now + fetch_timeout_ms // 2
        self.fetched[node_id] = None
        if len(self.fetched) >= majority - (self.me.node_id in self.voters):  # the leader itself counts if it votes
            self.fetched.clear()
            self.check_quorum_ms = now + round(CHECK_QUORUM_FACTOR * fetch_timeout_ms)

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, who has most first."""
        others = [each for node_id, each in self.voters.items() if node_id != self.me.node_id]
        return tuple(each.key for each in sorted(others, key=lambda each: (-each.end_offset, each.key.node_id)))

    def described(self, now: Millis, ahead: Millis) -> tuple[Sequence[Replica], Sequence[Replica]]:
        """(voters, observers), with times by a clock that is `ahead` of `now`'s; the leader itself is caught up by
        definition."""

        def seen(replica: Replica) -> Replica:
            at = now, now
            if replica.key.node_id != self.me.node_id:
                at = replica.last_fetch_ms, replica.last_caught_up_ms
            fetch_ms, caught_up_ms = (each + ahead if each >= 0 else -1 for each in at)
            return replace(replica, last_fetch_ms=fetch_ms, last_caught_up_ms=caught_up_ms)

        return [seen(each) for each in self.voters.values()], [seen(each) for each in self.observers.values()]
