"""One replica of the metadata log: who leads in which epoch, and what is committed (KRaft: KIP-595, 853, 996).

The core does no input or output. Its methods take what happened and return a `Ready`: what must be done, in this
order: persist the quorum state (fsynced, before anything that depends on it leaves the node), append the control
records, fsync the log and report that with `on_flushed`. What a replica is between two steps, and what can be asked of
it, is in `state.py`: `requests` returns what to send to other voters, as long as it is due; `deadline_ms` is when to
call `on_timeout`. Times are milliseconds of a clock that only goes forward.

A replica is its node and its log directory together: a voter with a new disk is another one (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from ottla.model import ZERO_UUID, LeaderEpoch, Millis, NodeId, Offset
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.protocol.schemas.records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    VoterEndpoint,
    VotersRecord,
)
from ottla.quorum.election import Election, LogEnd, Timing, backoff_ms, election_timeout_ms, successor_backoff_ms
from ottla.quorum.epochs import EPOCH_LAST
from ottla.quorum.leader import CHECK_QUORUM_FACTOR, Leadership, Replica
from ottla.quorum.state import (
    ELECTING,
    NOTHING,
    BeginRequest,
    EndRequest,
    Ready,
    ReplicaState,
    Role,
    VoteRequest,
)
from ottla.quorum.voters import Configuration, Configurations, ReplicaKey, VoterSet, says_the_same, voter

START_TIMEOUT_DIVISOR = 10
"""A voter that starts asks early who leads: with pre-votes that disturbs nobody."""


@dataclass(slots=True)
class QuorumCore(ReplicaState):
    """The transitions of a replica. Invariants: `epoch` never decreases; at most one vote per epoch, persisted before
    it is given; as leader, only records of its own epoch move the high watermark, and it never decreases."""

    _persisted: QuorumStateFile | None = None
    _control: tuple[Any, ...] = ()
    _committed: Offset = -1
    """The high watermark that was handed out last."""

    @classmethod
    def of(
        cls,
        me: ReplicaKey,
        voters: Iterable[ReplicaKey] | Configurations,
        stored: QuorumStateFile | None,
        log_end: LogEnd,
        random: Random,
        timing: Timing = Timing(),  # noqa: B008 - immutable
        *,
        can_vote: bool = True,
    ) -> QuorumCore:
        """The state of `me` after a start, with what it has on disk. `start` it once the log is open."""
        if not isinstance(voters, Configurations):
            voters = Configurations(Configuration(-2, 0, VoterSet.of(voters)))
        stored = stored or QuorumStateFile()
        core = cls(me, voters, stored, log_end.offset, log_end.epoch, random, timing, can_vote)
        core._persisted = stored
        return core

    # Time.

    def start(self, now: Millis, endpoints: Sequence[VoterEndpoint] = ()) -> Ready:
        """The log is open, and others reach this node as a controller at `endpoints`. The only voter leads at once; an
        epoch once used is never used again, even where the quorum-state file is lost or older than the log. Raises
        ValueError where there is no later epoch for the only voter."""
        if endpoints:
            self.own = voter(self.me, endpoints)
        # The log of the only voter has all of its epochs.
        if self.last_epoch > self.epoch or (self.alone and self.is_far_ahead):
            self.stored = self._state(self.last_epoch)
        if self.alone:
            return self._elect_alone(now)
        if self.stored.leader_id == self.node_id:
            self.role = Role.RESIGNED  # an epoch is led by one process: after a restart it is resigned (`QuorumState`)
        if self.may_stand or self.role is Role.RESIGNED:  # it may have removed itself: then it looks for a leader soon
            self.deadline_ms = now + max(1, election_timeout_ms(self.timing, self.random) // START_TIMEOUT_DIVISOR)
        return self._ready()

    def on_timeout(self, now: Millis) -> Ready:
        """`now` may be any time; nothing is done before the deadline."""
        if self.deadline_ms is None or now < self.deadline_ms:
            return self._ready()
        if self.role is Role.LEADER:
            self._resign(now)  # no majority has fetched: check quorum (Raft thesis, 6.2; `LeaderState`)
        elif not self.may_stand:
            self._stop_waiting()
        elif self.role is Role.CANDIDATE and self.election is not None:
            self._lose(now)  # a split vote: wait at random before the next (Raft, 5.2)
        else:
            self._stand(now)  # pre-votes first: a node that was cut off disturbs no leader (KIP-996)
        return self._ready()

    def _stop_waiting(self) -> None:
        """An observer that led: the epoch is over with it (it may have been removed). Or one whose leader is silent."""
        self.has_fetched = False  # a candidate whose set of voters is newer may need its vote
        if self.role is Role.RESIGNED and self.epoch < EPOCH_LAST:
            self.stored = self._state(self.epoch + 1)
        if self.role is not Role.FOLLOWER:
            self.role, self.election = Role.UNATTACHED, None
        self.deadline_ms = None

    # Elections.

    def _stand(self, now: Millis) -> None:
        """Ask who would vote for this node."""
        if self.epoch >= EPOCH_LAST:  # no election is possible
            self.deadline_ms = None
            return
        self.role, self.election = Role.PROSPECTIVE, Election()
        self.has_fetched = False
        self.unacknowledged.clear()
        self.deadline_ms = now + election_timeout_ms(self.timing, self.random)
        self.election.record(self.node_id, granted=True)
        self._count(now)

    def _candidate(self, now: Millis) -> None:
        self.role, self.election = Role.CANDIDATE, Election()
        self.stored = self._state(self.epoch + 1, voted=self.me)  # on disk before any request: one vote an epoch
        self.deadline_ms = now + election_timeout_ms(self.timing, self.random)
        self.election.record(self.node_id, granted=True)
        self._count(now)

    def _count(self, now: Millis) -> None:
        election = self.election
        assert election is not None
        if election.is_won(self.voters):
            if self.role is Role.PROSPECTIVE:
                self._candidate(now)  # a majority would vote for it: only now a new epoch (KIP-996)
            else:
                self._lead(now, list(election.granted))  # one leader an epoch, as majorities overlap (Raft, 5.2)
        elif election.is_lost(self.voters):
            self._lose(now)

    def _lose(self, now: Millis) -> None:
        """Wait before the next attempt. Who lost only a pre-vote follows the leader that it knew, if any."""
        self.losses += 1  # each makes the next wait longer, as Kafka (KIP-595)
        if self.role is Role.PROSPECTIVE and self.leader_id >= 0:
            self._follow(now)
            return
        if self.role is Role.PROSPECTIVE:
            self.role = Role.UNATTACHED
        self.election = None
        self.deadline_ms = now + backoff_ms(self.timing, self.random, self.losses)

    def _elect_alone(self, now: Millis) -> Ready:
        if self.epoch >= EPOCH_LAST:
            raise ValueError(f"epoch {self.epoch} is the last one that there is")
        self.stored = self._state(self.epoch + 1, voted=self.me)
        self._lead(now, [self.node_id])
        return self._ready()

    def _lead(self, now: Millis, granting: Sequence[NodeId]) -> None:
        self.role, self.election, self.losses = Role.LEADER, None, 0
        self.stored = self._state(self.epoch, leader_id=self.node_id, voted=self.me)
        check_ms = now + round(CHECK_QUORUM_FACTOR * self.timing.fetch_timeout_ms)
        replicas = {key.node_id: Replica(key, begin_due_ms=now) for key in self.voters.keys}
        self.leadership = Leadership(self.me, self.end_offset, replicas, check_ms)
        self._check_quorum()
        newest = self.configurations.newest
        current, listed, is_dynamic = newest, self.voters.find(self.me), newest.kraft_version >= 1
        if is_dynamic and self.own is not None and listed is not None and not says_the_same(listed, self.own):
            current = newest._replace(voters=self.voters.with_voter(self.own))
        named = tuple(LeaderChangeVoter(key.node_id, ZERO_UUID) for key in self.voters.keys)
        # In version 0, which is how Kafka reads it whatever it says: version 1, with directories, ends its controllers.
        change = LeaderChangeMessage(0, self.node_id, named, tuple(each for each in named if each.voter_id in granting))
        # Voters that only the formatted directory names are not in the log that others copy, nor is a new address.
        first = current.records() if newest.offset < 0 or current is not newest else ()
        self._control = (change, *first)

    def _check_quorum(self) -> None:
        """The leader's deadline; a majority of one is always there."""
        assert self.leadership is not None
        self.deadline_ms = None if self.alone else self.leadership.check_quorum_ms

    # What others say.

    def on_vote(
        self, candidate: ReplicaKey, epoch: LeaderEpoch, log_end: LogEnd, now: Millis, *, pre_vote: bool
    ) -> tuple[Ready, bool]:
        """A candidate of `epoch` asks for a vote. Returns whether it gets it; not before the state is persisted."""
        if epoch > self.epoch and self.believes(epoch, now):
            self._adopt(epoch, now)
        granted = epoch == self.epoch and self.grants(candidate, log_end, pre_vote=pre_vote)
        if granted and not pre_vote and self.stored.voted_id < 0:  # a pre-vote changes no state
            self.stored = self._state(epoch, voted=candidate)
            self.role, self.election = Role.UNATTACHED, None
            if self.may_stand:
                self.deadline_ms = now + election_timeout_ms(self.timing, self.random)
        return self._ready(), granted

    def on_vote_answer(self, request: VoteRequest, now: Millis, *, granted: bool) -> Ready:
        """A voter answered. What it says of epoch and leader is for `heard`, before this."""
        electing = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
        if self.role is electing and self.election is not None and request.epoch == self.epoch:
            self.election.record(request.to.node_id, granted=granted)
            self._count(now)
        return self._ready()

    def heard(
        self, leader_id: NodeId, epoch: LeaderEpoch, now: Millis, *, from_leader: bool = False, voter: NodeId = -1
    ) -> Ready:
        """Another node says that `leader_id` (-1: it knows of none) leads `epoch`; `from_leader`: the leader itself.

        `voter` is who said so when it was asked, -1 for a request, which may come from anybody. An epoch that is too
        far ahead to be believed (`EpochLimit`) changes nothing. Raises ValueError for a second leader of an epoch,
        which only a bug or another quorum can cause.
        """
        if self.believes(epoch, now):
            self.limit.claims.pop(voter, None)
        elif (proven := self.limit.proven(voter, epoch, self.voters, now)) is not None:
            self._adopt(proven, now)
        if epoch < self.epoch or not self.believes(epoch, now):
            return self._ready()
        if leader_id == self.node_id:
            if epoch > self.epoch:  # said by who knows more of this node than it does itself: a lost disk
                self._adopt(epoch, now)
            return self._ready()
        if epoch > self.epoch:
            self._adopt(epoch, now)
            if leader_id >= 0:
                self._attach(leader_id, now)
        elif leader_id >= 0:
            if self.is_leader or self.stored.leader_id not in (-1, leader_id):
                raise ValueError(f"epoch {epoch} is led by {self.stored.leader_id}, not by {leader_id}")
            is_news = self.stored.leader_id < 0 or (from_leader and self.role is not Role.FOLLOWER)
            if is_news:
                self._attach(leader_id, now)
        return self._ready()

    def _adopt(self, epoch: LeaderEpoch, now: Millis) -> None:
        """A newer epoch has begun, of whoever it is."""
        self.limit.spend(self.epoch, epoch, now)
        was_leader = self.role in (Role.LEADER, Role.RESIGNED)
        self.stored = self._state(epoch)
        self.role, self.election, self.leadership = Role.UNATTACHED, None, None  # a later term ends any (Raft, 5.1)
        self.has_fetched = False
        self.unacknowledged.clear()
        if self.alone:
            self.deadline_ms = now
        elif not self.may_stand:
            self.deadline_ms = None
        elif was_leader or self.deadline_ms is None:
            self.deadline_ms = now + election_timeout_ms(self.timing, self.random)

    def _attach(self, leader_id: NodeId, now: Millis) -> None:
        before = self.stored
        self.stored = self._state(self.epoch, leader_id=leader_id)
        if before.voted_id >= 0:  # a vote is given once in an epoch, whatever comes after it
            self.stored = self._state(
                self.epoch, leader_id=leader_id, voted=ReplicaKey(before.voted_id, before.voted_directory_id)
            )
        self.losses = 0
        self._follow(now)

    def _follow(self, now: Millis) -> None:
        self.role, self.election, self.leadership = Role.FOLLOWER, None, None
        self.has_fetched = False
        self.unacknowledged.clear()
        self.deadline_ms = now + self.timing.fetch_timeout_ms if self.can_vote else None

    def on_fetched(self, leader_id: NodeId, epoch: LeaderEpoch, now: Millis) -> Ready:
        """The leader answered a fetch, or sent a piece of a snapshot."""
        if epoch == self.ended == self.epoch:
            return self._ready()  # a late answer: the leader of this epoch has resigned
        ready = self.heard(leader_id, epoch, now, from_leader=True)
        if self.role is Role.FOLLOWER and (leader_id, epoch) == (self.stored.leader_id, self.epoch):
            self.has_fetched, self.losses = True, 0
            self.deadline_ms = now + self.timing.fetch_timeout_ms if self.can_vote else None
        return ready

    def on_leader_lost(self, now: Millis) -> Ready:
        """The leader's address refuses connections: its process is gone. Elections need not wait for a timeout."""
        if self.role is Role.FOLLOWER and self.can_vote:
            self.has_fetched = False
            soon = now + round(self.random.random() * self.timing.election_timeout_ms) // START_TIMEOUT_DIVISOR
            self.deadline_ms = soon if self.deadline_ms is None else min(self.deadline_ms, soon)
        return self._ready()

    def on_begin_answer(self, request: BeginRequest, now: Millis) -> Ready:
        """A voter knows that this node leads."""
        if self.leadership is not None and request.epoch == self.epoch:
            found = self.leadership.voters.get(request.to.node_id)
            if found is not None:
                found.begin_due_ms = now + self.timing.fetch_timeout_ms // 2  # until it fetches (`LeaderState`)
        return self._ready()

    def on_end(self, leader_id: NodeId, epoch: LeaderEpoch, successors: Sequence[ReplicaKey], now: Millis) -> Ready:
        """The leader of `epoch` gives it up. Who has most of the log is the first to stand for election."""
        self.heard(leader_id, epoch, now)
        if self.role is Role.FOLLOWER and self.may_stand and (leader_id, epoch) == (self.stored.leader_id, self.epoch):
            self.has_fetched, self.ended = False, epoch
            ids = [each.node_id for each in successors]
            position = ids.index(self.node_id) if self.node_id in ids else -1  # by their log ends (KIP-595)
            self.deadline_ms = now + successor_backoff_ms(self.timing, position, successors)
        return self._ready()

    def on_end_answer(self, request: EndRequest) -> Ready:
        if request.epoch == self.epoch:
            self.unacknowledged.pop(request.to.node_id, None)
        return self._ready()

    # The log.

    def on_appended(self, end_offset: Offset, last_epoch: LeaderEpoch) -> None:
        """The log of this node now ends at `end_offset`, with a record of `last_epoch`."""
        if end_offset < self.end_offset:
            raise ValueError(f"log end moved back from {self.end_offset} to {end_offset}")
        self.end_offset, self.last_epoch = end_offset, last_epoch

    def on_truncated(self, end_offset: Offset, last_epoch: LeaderEpoch, now: Millis = 0) -> Ready:
        """The log of this node was cut and ends at `end_offset`. Raises ValueError for what is committed."""
        if end_offset < self.high_watermark:  # every leader has what is committed (Raft, 5.4)
            raise ValueError(f"log cut to {end_offset}, below the high watermark {self.high_watermark}")
        if end_offset < self.end_offset:
            self.end_offset, self.last_epoch = end_offset, last_epoch
            if self.configurations.truncate(end_offset):
                self._voters_changed(now)
        return self._ready()

    def on_snapshot(
        self, end_offset: Offset, last_epoch: LeaderEpoch, configuration: Configuration | None, now: Millis = 0
    ) -> Ready:
        """A snapshot took the place of the whole log; all that is in it is committed."""
        self.end_offset, self.last_epoch = end_offset, last_epoch
        self.high_watermark = self._committed = max(self.high_watermark, end_offset)
        if configuration is not None:
            self.configurations.replace(configuration)
            self._voters_changed(now)
        return self._ready()

    def on_configuration(self, offset: Offset, record: KRaftVersionRecord | VotersRecord, now: Millis) -> Ready:
        """The log has a control record about voters at `offset`; it counts from now on, committed or not (KIP-853)."""
        if self.configurations.add(offset, record):
            if self.kraft_version >= 1 and self.stored.data_version < 1:  # the log names the voters now
                self.stored = replace(self.stored, voters=(), data_version=1)
            self._voters_changed(now)
        return self._ready()

    def _voters_changed(self, now: Millis) -> None:
        if self.leadership is not None:
            self.leadership.set_voters(self.voters, now)
            if self.deadline_ms is None:
                self.leadership.check_quorum_ms = now + round(CHECK_QUORUM_FACTOR * self.timing.fetch_timeout_ms)
            self._check_quorum()
        elif not self.may_stand:
            if self.role in ELECTING:
                self.role, self.election = Role.UNATTACHED, None
            if self.role is not Role.RESIGNED:
                self.deadline_ms = None
        elif self.deadline_ms is None:
            self.deadline_ms = now + self.timing.fetch_timeout_ms

    def on_leader_high_watermark(self, offset: Offset) -> Ready:
        """The leader that this node follows says what is committed; it counts as far as it is here."""
        if self.role is Role.FOLLOWER:
            self._commit(min(offset, self.end_offset))  # the leader may be ahead of this log
        return self._ready()

    def on_flushed(self, end_offset: Offset, now: Millis) -> Ready:
        """Everything below `end_offset` is on this node's disk. Only then does this node count in the majority."""
        if self.leadership is not None:
            own = self.leadership.voters.get(self.node_id)
            if own is not None:  # a leader may be no voter any more
                self.leadership.note_fetch(own, end_offset, self.end_offset, now)
            self._advance()
        return self._ready()

    def on_fetch(self, key: ReplicaKey, end_offset: Offset, now: Millis) -> Ready:
        """Another replica fetches after `end_offset`: it has all below on its disk. One without an id only reads."""
        leadership = self.leadership
        if leadership is None or key.node_id < 0:
            return self._ready()
        if end_offset > self.end_offset:
            raise ValueError(f"replica {key.node_id} claims {end_offset}, the log ends at {self.end_offset}")
        leadership.note_fetch(leadership.replica(key, self.voters, now), end_offset, self.end_offset, now)
        self._heard_voter(leadership, key, now)
        self._advance()
        return self._ready()

    def on_snapshot_fetch(self, key: ReplicaKey, now: Millis) -> None:
        """Another replica asks for a part of a snapshot."""
        if self.leadership is not None and key.node_id >= 0:
            self.leadership.replica(key, self.voters, now).last_fetch_ms = now
            self._heard_voter(self.leadership, key, now)

    def _heard_voter(self, leadership: Leadership, key: ReplicaKey, now: Millis) -> None:
        if key.node_id != self.node_id and self.voters.find(key) is not None:
            leadership.hear_voter(key.node_id, self.voters.majority, now, self.timing.fetch_timeout_ms)
            self._check_quorum()

    def _advance(self) -> None:
        assert self.leadership is not None
        reached = self.leadership.reached(self._majority)
        if self._may_commit(reached):
            self._commit(reached)

    @property
    def _majority(self) -> int:
        return self.voters.majority

    def _may_commit(self, reached: Offset) -> bool:
        """A majority with older records only proves nothing (section 5.4.2 of the Raft paper)."""
        assert self.leadership is not None
        return reached > self.leadership.epoch_start

    def _commit(self, offset: Offset) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.configurations.commit(offset)

    # Leaving.

    def resign(self, now: Millis) -> Ready:
        """Give up leadership for the rest of this epoch."""
        if self.role is Role.LEADER:
            self._resign(now)
        return self._ready()

    def _resign(self, now: Millis) -> None:
        assert self.leadership is not None
        self.resigned_to = self.leadership.successors()
        self.unacknowledged = {key.node_id: key for key in self.voters.keys if key.node_id != self.node_id}
        self.role, self.leadership = Role.RESIGNED, None
        self.deadline_ms = now + election_timeout_ms(self.timing, self.random)  # if none of them leads by then

    # Effects.

    def _state(self, epoch: LeaderEpoch, *, leader_id: NodeId = -1, voted: ReplicaKey | None = None) -> QuorumStateFile:
        return self.configurations.newest.state_file(epoch, leader_id, voted)

    def _ready(self) -> Ready:
        """The effects of this step."""
        persist = None if self.stored == self._persisted else self.stored
        control, self._control = self._control, ()
        committed = self.high_watermark if self.high_watermark > self._committed else None
        self._persisted, self._committed = self.stored, self.high_watermark
        if persist is None and committed is None and not control:
            return NOTHING
        return Ready(persist, control, committed)
