"""Nothing that can happen to three voters breaks a promise, and each rule of the core is needed for that.

The numbers of states are pinned: another number means that the core does something else than before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.quorum.core import QuorumCore
from ottla.quorum.election import Election
from ottla.quorum.state import Role
from ottla.quorum.voters import VoterSet
from tests.unit.quorum.exploration import Direct, Found, Rules, World
from tests.unit.quorum.states import VOTERS_UNIT, Node, State, Violation

VOTES = frozenset({"vote"})
FETCHES = frozenset({"fetch"})
NONE: frozenset[str] = frozenset()

LATE_VOTES = World(epochs=2, messages=1, kinds=VOTES, in_flight=VOTES, states_max=20_000)
TWO_LATE_VOTES = World(epochs=1, messages=2, kinds=VOTES, in_flight=VOTES, states_max=20_000)
LATE_FETCHES = World(epochs=1, messages=1, in_flight=FETCHES, states_max=20_000)
SECOND_LEADER = World(epochs=2, messages=0, in_flight=NONE, crashes=False, states_max=20_000)
"""Nothing is late here, and nobody crashes, but the logs of two leaders meet."""

THIRD_LEADER = World(epochs=3, messages=0, in_flight=NONE, crashes=False, states_max=20_000)


EVERYTHING = frozenset({"vote", "begin", "fetch", "end"})
PRE_VOTES = World(
    epochs=1, messages=0, in_flight=NONE, crashes=False, rules=Rules(QuorumCore, pre_votes=True), states_max=20_000
)
LATE_END = World(epochs=1, messages=1, in_flight=frozenset({"end"}), kinds=EVERYTHING, crashes=False, states_max=20_000)
CHANGES = World(epochs=1, messages=0, in_flight=NONE, crashes=False, changes=2, states_max=20_000)
CHANGED = World(epochs=2, messages=0, in_flight=NONE, crashes=False, changes=1, states_max=20_000)
SNAPSHOTS = World(epochs=3, messages=0, in_flight=NONE, crashes=False, snapshots=True, states_max=20_000)
CHANGED_BY_SNAPSHOT = World(
    epochs=1, messages=0, in_flight=NONE, crashes=False, snapshots=True, changes=1, states_max=20_000
)
WITHOUT_THREE = 1 + VOTERS_UNIT * (1 << 1 | 1 << 2)
"""A record of epoch 1 that leaves nodes 1 and 2 as voters."""


def led(committed: int = -1) -> State:
    """Node 1 leads epoch 1 with its first record, which the others have too where it is committed."""
    log = (1,) if committed > 0 else ()
    first = Node(Role.LEADER, 1, 1, 1, (1,), 1, committed, None, 0, (1, len(log) or -1, len(log) or -1))
    other = Node(Role.FOLLOWER, 1, 1, -1, log, len(log), committed)
    return State((first, other, other), leaders=((1, 1),), committed=log)


def half_removed() -> State:
    """The leader of epoch 1 is gone; that node 3 is to vote no more is on two nodes of three, and not known to be
    committed."""
    log = (1, WITHOUT_THREE)
    gone = Node(Role.RESIGNED, 1, 1, 1, log, 2, 1)
    others = [Node(Role.FOLLOWER, 1, 1, -1, each, len(each), 1) for each in (log, (1,))]
    return State((gone, *others), leaders=((1, 1),), committed=(1,))


def behind() -> State:
    """Node 1 leads epoch 3, and all that it and node 2 have is committed; node 3 has as much, of epoch 2."""
    log = (1, 3, 3)
    first = Node(Role.LEADER, 1, 3, 1, log, 3, 3, None, 1, (3, 3, -1))
    second = Node(Role.FOLLOWER, 1, 3, -1, log, 3, -1)
    third = Node(Role.UNATTACHED, -1, 2, 3, (2, 2, 2), 3, -1)
    return State((first, second, third), leaders=((1, 2), (2, 3), (3, 1)), committed=log)


def removed() -> State:
    """Node 3 has not heard yet that it votes no more."""
    log = (1, WITHOUT_THREE)
    first = Node(Role.LEADER, 1, 1, 1, log, 2, 2, None, 0, (2, 2, 1))
    others = [Node(Role.FOLLOWER, 1, 1, -1, each, len(each), 1) for each in (log, (1,))]
    return State((first, *others), leaders=((1, 1),), committed=log)


def one_committed() -> State:
    """Node 1 led epoch 1 and had node 2 commit its first record; all have just started."""
    world = SECOND_LEADER
    return world.start((1,), (1,), (), epochs=(1, 1, 1), leaders=(1, 1, 1))._replace(committed=(1,), leaders=((1, 1),))


def two_logs() -> State:
    """Figure 8 of the Raft paper: one record of epoch 1 at node 1, one of epoch 2 at node 3, none at node 2."""
    return SECOND_LEADER.start((1,), (), (2,), epochs=(2, 2, 2), leaders=(3, -1, 3))._replace(leaders=((1, 1), (2, 3)))


def fresh(world: World) -> State:
    return world.start((), (), ())


@pytest.mark.parametrize(
    ("world", "start", "states", "reached"),
    [
        (LATE_VOTES, fresh(LATE_VOTES), 5238, {"two candidates", "late vote", "stale leader", "divergent suffix"}),
        (TWO_LATE_VOTES, fresh(TWO_LATE_VOTES), 847, {"two candidates"}),
        (LATE_FETCHES, fresh(LATE_FETCHES), 5285, {"two candidates"}),
        (SECOND_LEADER, one_committed(), 2018, {"commit after another leader", "two candidates"}),
        (THIRD_LEADER, two_logs(), 2498, {"commit after another leader", "divergent suffix"}),
        (PRE_VOTES, fresh(PRE_VOTES), 457, {"two candidates"}),
        (LATE_END, fresh(LATE_END), 680, {"follower of who resigned", "two candidates"}),
        (CHANGES, led(1), 662, {"uncommitted voters", "committed voters"}),
        (CHANGED, half_removed(), 866, {"uncommitted voters", "another leader after a change", "two candidates"}),
        (
            SNAPSHOTS,
            behind(),
            3140,
            {
                "snapshot",
                "snapshot after a divergent log",
                "log dropped at the start",
                "log longer than the snapshot dropped",
            },
        ),
        (CHANGED_BY_SNAPSHOT, removed(), 335, {"snapshot", "uncommitted voters"}),
    ],
    ids=[
        "late-votes",
        "two-late-votes",
        "late-fetches",
        "second-leader",
        "third-leader",
        "pre-votes",
        "late-end",
        "changes",
        "changed",
        "snapshots",
        "changed-by-snapshot",
    ],
)
def test_nothing_that_can_happen_breaks_a_promise(world: World, start: State, states: int, reached: set[str]) -> None:
    found = world.explore(start)
    assert reached <= found.reached
    assert found.states == states


class AnyLog(Direct):
    def _is_up_to_date(self, log_end: Any) -> bool:
        return True


class ManyVotes(Direct):
    def _voted_for(self, candidate: Any) -> bool:
        return True


class CommitsAlone(Direct):
    @property
    def _majority(self) -> int:
        return 1


class CommitsOldEpochs(Direct):
    def _may_commit(self, reached: int) -> bool:
        return True


class SameEpoch(Direct):
    def _candidate(self, now: int) -> None:
        before = self.stored
        super()._candidate(now)
        if before.leader_epoch > 0:
            self.stored = self._state(before.leader_epoch, voted=self.me)


class LateVotesCount(Direct):
    def on_vote_answer(self, request: Any, now: int, *, granted: bool) -> Any:
        return super().on_vote_answer(request._replace(epoch=self.epoch), now, granted=granted)


class CommitsBeyondLog(Direct):
    def on_leader_high_watermark(self, offset: int) -> Any:
        self.high_watermark = max(self.high_watermark, offset)
        return self._ready()


class Disturbs(QuorumCore):
    """Says yes to a pre-vote although it has heard of the leader."""

    def grants(self, candidate: Any, log_end: Any, *, pre_vote: bool) -> bool:
        heard, self.has_fetched = self.has_fetched, False
        granted = super().grants(candidate, log_end, pre_vote=pre_vote)
        self.has_fetched = heard
        return granted


class ForgetsToHaveLed(Direct):
    def _resign(self, now: int) -> None:
        super()._resign(now)
        self.stored = self._state(self.epoch)


class KeepsItsLastEpoch(Direct):
    def on_snapshot(self, end_offset: int, last_epoch: int, *rest: Any) -> Any:
        return super().on_snapshot(end_offset, self.last_epoch, *rest)


class KeepsItsVoters(Direct):
    def on_snapshot(self, end_offset: int, last_epoch: int, configuration: Any, now: int = 0) -> Any:
        return super().on_snapshot(end_offset, last_epoch, None, now)


class WinsAlone(Election):
    def is_won(self, voters: VoterSet) -> bool:
        return True


@pytest.mark.parametrize(
    ("rules", "world", "start"),
    [
        (Rules(AnyLog), SECOND_LEADER, one_committed()),
        (Rules(ManyVotes), LATE_VOTES, fresh(LATE_VOTES)),
        (Rules(persists_votes=False), TWO_LATE_VOTES, fresh(TWO_LATE_VOTES)),
        (Rules(CommitsAlone), SECOND_LEADER, one_committed()),
        (Rules(CommitsOldEpochs), World(epochs=4, messages=0, in_flight=NONE, crashes=False), two_logs()),
        (Rules(SameEpoch), World(epochs=2, messages=0, in_flight=NONE), fresh(LATE_VOTES)),
        (Rules(LateVotesCount), World(epochs=2, messages=2, kinds=VOTES, in_flight=VOTES), fresh(LATE_VOTES)),
        (Rules(CommitsBeyondLog), World(epochs=2, messages=0, in_flight=NONE), one_committed()),
        (Rules(waits_for_fsync=False), World(epochs=2, messages=0, in_flight=NONE), fresh(LATE_FETCHES)),
        (Rules(checks_divergence=False), World(epochs=3, messages=0, in_flight=NONE, crashes=False), two_logs()),
        (Rules(Disturbs, pre_votes=True), SECOND_LEADER, led()),
        (Rules(Direct, pre_votes=True), SECOND_LEADER, led()),
        (Rules(ForgetsToHaveLed), World(epochs=1, messages=0, in_flight=NONE, kinds=EVERYTHING), fresh(LATE_END)),
        (Rules(one_change=False), World(epochs=2, messages=0, in_flight=NONE, crashes=False, changes=2), led(1)),
        (Rules(counts_at_once=False), World(epochs=2, messages=0, in_flight=NONE, crashes=False, changes=2), led(1)),
        (Rules(needs_snapshot=lambda start, oldest, offset, last_epoch: False), SNAPSHOTS, behind()),
        (Rules(needs_snapshot=lambda start, oldest, offset, last_epoch: offset < start), SNAPSHOTS, behind()),
        (Rules(takes_place=lambda snapshot, log_end, epoch: False), SNAPSHOTS, behind()),
        (Rules(takes_place=lambda snapshot, log_end, epoch: log_end < snapshot.end_offset), SNAPSHOTS, behind()),
        (Rules(snapshots_committed=False), replace(SECOND_LEADER, snapshots=True), one_committed()),
        (Rules(KeepsItsLastEpoch), SNAPSHOTS, behind()),
        (Rules(KeepsItsVoters), CHANGED_BY_SNAPSHOT, removed()),
    ],
    ids=[
        "up-to-date",
        "one-vote",
        "vote-on-disk",
        "majority",
        "own-epoch",
        "new-epoch",
        "late-votes",
        "own-log",
        "fsync",
        "divergence",
        "leader-heard",
        "pre-vote",
        "resigned",
        "one-change",
        "at-once",
        "snapshot",
        "snapshot-epoch",
        "log-dropped",
        "log-dropped-by-epoch",
        "snapshot-committed",
        "snapshot-last-epoch",
        "snapshot-voters",
    ],
)
def test_without_any_one_rule_a_promise_is_broken(rules: Rules, world: World, start: State) -> None:
    without = replace(world, rules=rules, states_max=60_000)
    with pytest.raises((Violation, ValueError)) as caught:
        without.explore(start)
    assert "more than" not in str(caught.value), "not found in so many states"


def test_a_majority_of_votes_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.quorum.core.Election", WinsAlone)
    with pytest.raises(Violation, match="two leaders of epoch 1"):
        TWO_LATE_VOTES.explore(fresh(TWO_LATE_VOTES))


def test_a_bound_that_is_hit_is_a_failure() -> None:
    with pytest.raises(Violation, match="more than 100 states"):
        World(epochs=1, messages=1, states_max=100).explore(fresh(LATE_VOTES))
    assert Found().states == 0
