"""Rules of the quorum, one test per claim. Whole stories are walked through in `exploration.py`."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.protocol.schemas.records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from ottla.quorum.core import QuorumCore
from ottla.quorum.election import LogEnd, Timing, backoff_ms, successor_backoff_ms
from ottla.quorum.leader import OBSERVER_EXPIRY_MS
from ottla.quorum.state import NOTHING, BeginRequest, EndRequest, Ready, Role, VoteRequest
from ottla.quorum.voters import Configuration, Configurations, ReplicaKey, VoterSet, voter

TIMING = Timing()


def core(
    *voters: int,
    stored: QuorumStateFile | None = None,
    end: int = 0,
    last_epoch: int = 0,
    kraft_version: int = 0,
    can_vote: bool = True,
) -> QuorumCore:
    keys = VoterSet.of(key(each) for each in voters or (1,))
    configurations = Configurations(Configuration(-2, kraft_version, keys))
    return QuorumCore.of(key(1), configurations, stored, LogEnd(last_epoch, end), Random(1), TIMING, can_vote=can_vote)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id))


def lead(quorum: QuorumCore, now: int = 0) -> QuorumCore:
    """Let it be elected by all, and append what it writes first."""
    steps = [quorum.start(now)]
    now = quorum.deadline_ms or now
    steps.append(quorum.on_timeout(now))
    while not quorum.is_leader:
        for request in quorum.requests(now):
            assert isinstance(request, VoteRequest)
            steps.append(quorum.on_vote_answer(request, now, granted=True))
    (records,) = [each.control_records for each in steps if each.control_records]
    quorum.on_appended(quorum.end_offset + len(records), quorum.epoch)
    return quorum


def leader_of_three(end: int = 0) -> QuorumCore:
    return lead(core(1, 2, 3, end=end))


def follower(leader: int = 2, epoch: int = 4, *voters: int, end: int = 5) -> QuorumCore:
    quorum = core(*(voters or (1, 2, 3)), end=end, last_epoch=3 if end else 0)
    quorum.start(0)
    quorum.heard(leader, epoch, 0)
    return quorum


def test_a_quorum_of_one_elects_itself_at_once() -> None:
    quorum = core()
    ready = quorum.start(0)
    assert quorum.role is Role.LEADER
    assert (quorum.leader_id, quorum.deadline_ms, quorum.requests(0)) == (1, None, [])
    assert ready.persist == QuorumStateFile(leader_id=1, leader_epoch=1, voted_id=1, voters=(1,), data_version=0)
    (change,) = ready.control_records
    assert isinstance(change, LeaderChangeMessage)
    assert [each.voter_id for each in change.granting_voters] == [1]


@pytest.mark.parametrize(("stored", "last", "epoch"), [(0, 0, 1), (5, 3, 6), (2, 7, 8), (-1, 0, 1)])
def test_an_epoch_once_used_is_never_used_again(stored: int, last: int, epoch: int) -> None:
    quorum = core(stored=QuorumStateFile(leader_epoch=stored), end=1, last_epoch=last)
    quorum.start(0)
    assert quorum.epoch == epoch


def test_a_vote_names_the_directory_once_voters_are_dynamic() -> None:
    ready = core(kraft_version=1).start(0)
    assert ready.persist == QuorumStateFile(
        leader_id=1, leader_epoch=1, voted_id=1, voted_directory_id=UUID(int=1), data_version=1
    )
    assert ready.control_records[0].version == 0, "Kafka reads this record in no other"


def test_voters_that_the_directory_was_formatted_with_get_into_the_log() -> None:
    configurations = Configurations(Configuration(-1, 1, VoterSet.of([key(1)])))
    quorum = QuorumCore.of(key(1), configurations, None, LogEnd(0, 0), Random(1), TIMING)
    _, version, voters = quorum.start(0).control_records
    assert version == KRaftVersionRecord(0, 1)
    assert voters == VotersRecord(0, (voter(key(1)),))


# Elections.


def test_who_hears_of_no_leader_asks_first_and_changes_nothing() -> None:
    quorum = core(1, 2, 3, end=7, last_epoch=2)
    quorum.start(0)
    epoch = quorum.epoch
    assert quorum.deadline_ms is not None
    assert quorum.on_timeout(quorum.deadline_ms - 1) == NOTHING
    assert quorum.on_timeout(quorum.deadline_ms) == NOTHING
    assert (quorum.role, quorum.epoch) == (Role.PROSPECTIVE, epoch)
    assert quorum.requests(0) == [VoteRequest(key(each), epoch, 2, 7, True) for each in (2, 3)]


def test_a_majority_of_pre_votes_makes_a_candidate_and_one_of_votes_a_leader() -> None:
    quorum = core(1, 2, 3)
    quorum.start(0)
    quorum.on_timeout(9999)
    asked = quorum.requests(9999)
    ready = quorum.on_vote_answer(asked[0], 9999, granted=True)  # type: ignore[arg-type]
    assert quorum.role is Role.CANDIDATE
    assert ready.persist is not None and (ready.persist.leader_epoch, ready.persist.voted_id) == (1, 1)
    assert quorum.requests(9999) == [VoteRequest(key(each), 1, 0, 0, False) for each in (2, 3)]
    assert quorum.on_vote_answer(asked[1], 9999, granted=True) == NOTHING  # type: ignore[arg-type]
    assert quorum.role is Role.CANDIDATE, "a pre-vote that comes late is no vote"
    votes = quorum.requests(9999)
    assert quorum.on_vote_answer(votes[0], 9999, granted=False) == NOTHING  # type: ignore[arg-type]
    assert [each.to for each in quorum.requests(9999)] == [key(3)]
    ready = quorum.on_vote_answer(votes[1], 9999, granted=True)  # type: ignore[arg-type]
    assert quorum.role is Role.LEADER
    assert [each.voter_id for each in ready.control_records[0].granting_voters] == [1, 3]


def test_a_lost_election_is_followed_by_a_pause_and_by_another_one() -> None:
    quorum = core(1, 2, 3)
    quorum.start(0)
    quorum.on_timeout(9999)
    for request in quorum.requests(9999):
        quorum.on_vote_answer(request, 9999, granted=False)  # type: ignore[arg-type]
    assert quorum.role is Role.UNATTACHED
    assert quorum.requests(9999) == []
    assert quorum.deadline_ms is not None and 9999 <= quorum.deadline_ms <= 9999 + 1000
    quorum.on_timeout(quorum.deadline_ms)
    assert quorum.role is Role.PROSPECTIVE


def test_a_candidate_that_is_not_answered_begins_again() -> None:
    quorum = core(1, 2, 3)
    quorum.start(0)
    quorum.on_timeout(9999)
    quorum.on_vote_answer(quorum.requests(9999)[0], 9999, granted=True)  # type: ignore[arg-type]
    assert quorum.role is Role.CANDIDATE
    for _ in range(2):  # the pause
        assert quorum.deadline_ms is not None
        quorum.on_timeout(quorum.deadline_ms)
    assert (quorum.role, quorum.epoch) == (Role.PROSPECTIVE, 1), "without a new epoch for each attempt"


def test_only_a_voter_stands() -> None:
    for quorum in (core(2, 3), core(1, 2, 3, can_vote=False)):
        quorum.start(0)
        assert quorum.deadline_ms is None
        assert quorum.on_timeout(99999) == NOTHING
        assert quorum.role is Role.UNATTACHED


@pytest.mark.parametrize(
    ("end", "up_to_date"),
    [(LogEnd(3, 5), True), (LogEnd(3, 9), True), (LogEnd(4, 1), True), (LogEnd(3, 4), False), (LogEnd(2, 99), False)],
)
@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_vote_goes_to_who_has_all_that_may_be_committed(end: LogEnd, up_to_date: bool, pre_vote: bool) -> None:
    quorum = core(1, 2, 3, end=5, last_epoch=3)
    quorum.start(0)
    ready, granted = quorum.on_vote(key(2), 6, end, 1, pre_vote=pre_vote)
    assert granted is up_to_date
    assert ready.persist is not None and ready.persist.leader_epoch == 6, "the epoch is taken over all the same"
    assert ready.persist.voted_id == (2 if granted and not pre_vote else -1)


def test_one_vote_in_an_epoch_and_it_outlives_a_restart() -> None:
    quorum = core(1, 2, 3)
    quorum.start(0)
    assert quorum.on_vote(key(2), 6, LogEnd(0, 0), 1, pre_vote=False)[1]
    again = core(1, 2, 3, stored=quorum.stored)
    again.start(0)
    for each in (quorum, again):
        assert not each.on_vote(key(3), 6, LogEnd(5, 99), 1, pre_vote=False)[1]
        assert each.on_vote(key(2), 6, LogEnd(0, 0), 1, pre_vote=False)[1], "asked again"
        assert each.on_vote(key(3), 7, LogEnd(0, 0), 1, pre_vote=False)[1]


def test_a_vote_for_another_directory_of_the_same_node_is_another_vote() -> None:
    quorum = core(1, 2, 3, kraft_version=1)
    quorum.start(0)
    assert quorum.on_vote(key(2), 6, LogEnd(0, 0), 1, pre_vote=False)[1]
    assert not quorum.on_vote(ReplicaKey(2, UUID(int=99)), 6, LogEnd(0, 0), 1, pre_vote=False)[1]


def test_nobody_is_voted_for_where_somebody_leads() -> None:
    quorum = follower()
    assert not quorum.on_vote(key(3), 4, LogEnd(4, 99), 1, pre_vote=False)[1]
    leader = leader_of_three()
    for pre_vote in (True, False):
        assert not leader.on_vote(key(3), leader.epoch, LogEnd(4, 99), 1, pre_vote=pre_vote)[1]
    assert leader.is_leader


def test_a_pre_vote_disturbs_nobody_who_hears_of_a_leader() -> None:
    quorum = follower()
    assert quorum.on_vote(key(3), 4, LogEnd(4, 99), 1, pre_vote=True)[1], "the leader has not answered yet"
    quorum.on_fetched(2, 4, 2)
    assert not quorum.on_vote(key(3), 4, LogEnd(4, 99), 3, pre_vote=True)[1]
    assert quorum.role is Role.FOLLOWER
    assert quorum.deadline_ms == 2002
    quorum.on_timeout(2002)
    assert quorum.on_vote(key(3), 4, LogEnd(4, 99), 2003, pre_vote=True)[1]


def test_who_loses_a_pre_vote_goes_back_to_the_leader_it_knew() -> None:
    quorum = follower()
    quorum.on_fetched(2, 4, 2)
    quorum.on_timeout(2002)
    assert quorum.role is Role.PROSPECTIVE
    for request in quorum.requests(2002):
        quorum.on_vote_answer(request, 2003, granted=False)  # type: ignore[arg-type]
    assert (quorum.role, quorum.leader_id, quorum.deadline_ms) == (Role.FOLLOWER, 2, 4003)


def test_a_leader_that_answers_again_ends_a_pre_vote() -> None:
    quorum = follower()
    quorum.on_timeout(2000)
    assert quorum.role is Role.PROSPECTIVE
    quorum.heard(2, 4, 2001)
    assert quorum.role is Role.PROSPECTIVE, "that others still know of it is no news"
    quorum.on_fetched(2, 4, 2002)
    assert (quorum.role, quorum.deadline_ms) == (Role.FOLLOWER, 4002)


def test_where_nobody_listens_any_more_nobody_leads() -> None:
    quorum = follower()
    quorum.on_fetched(2, 4, 2)
    quorum.on_leader_lost(100)
    assert quorum.deadline_ms is not None and quorum.deadline_ms <= 200
    assert quorum.on_vote(key(3), 4, LogEnd(4, 99), 101, pre_vote=True)[1]


@pytest.mark.parametrize(("leader", "epoch", "why"), [(3, 4, "is led by 2")])
def test_an_epoch_has_one_leader(leader: int, epoch: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        follower().heard(leader, epoch, 0)
    with pytest.raises(ValueError, match="is led by 1"):
        leader_of_three().heard(2, 1, 0)


def test_an_epoch_does_not_come_back() -> None:
    quorum = follower()
    assert quorum.heard(3, 3, 0) == NOTHING
    assert (quorum.leader_id, quorum.epoch) == (2, 4)


def test_a_newer_epoch_ends_leadership() -> None:
    quorum = leader_of_three()
    ready = quorum.heard(-1, 9, 100)
    assert (quorum.role, quorum.epoch, quorum.leader_id) == (Role.UNATTACHED, 9, -1)
    assert ready.persist is not None and ready.persist.leader_epoch == 9
    assert quorum.deadline_ms is not None and quorum.deadline_ms > 1000
    alone = core()
    alone.start(0)
    alone.heard(-1, 9, 100)
    assert alone.deadline_ms == 100
    ready = alone.on_timeout(100)
    assert alone.is_leader and alone.epoch == 10 and ready.control_records


def test_who_led_an_epoch_does_not_lead_it_again() -> None:
    before = leader_of_three()
    quorum = core(1, 2, 3, stored=before.stored, end=1, last_epoch=1)
    quorum.start(0)
    assert (quorum.role, quorum.leader_id) == (Role.RESIGNED, -1)
    assert not quorum.on_vote(key(2), 1, LogEnd(1, 1), 1, pre_vote=False)[1]
    assert quorum.on_vote(key(2), 1, LogEnd(1, 1), 1, pre_vote=True)[1]
    quorum.on_timeout(9999)
    assert quorum.role is Role.PROSPECTIVE


def test_a_vote_stays_given_when_its_epoch_gets_a_leader() -> None:
    quorum = core(1, 2, 3, kraft_version=1)
    quorum.start(0)
    quorum.on_vote(key(3), 6, LogEnd(0, 0), 1, pre_vote=False)
    ready = quorum.heard(2, 6, 2)
    assert ready.persist is not None
    assert (ready.persist.voted_id, ready.persist.voted_directory_id, ready.persist.leader_id) == (3, UUID(int=3), 2)


def test_pauses_grow_and_have_a_limit() -> None:
    longest = [max(backoff_ms(TIMING, Random(seed), losses) for seed in range(99)) for losses in (1, 2, 3, 9, 99)]
    assert longest == sorted(longest)
    assert longest[0] <= 100 < longest[1] and longest[-1] <= 1000
    keys = [key(each) for each in (2, 3, 4)]
    assert [successor_backoff_ms(TIMING, at, keys) for at in (0, 1, 2, -1)] == [0, 250, 500, 1000]


# Leadership.


def test_a_leader_tells_the_others_until_they_answer() -> None:
    quorum = leader_of_three()
    now = quorum.deadline_ms or 0
    begins = quorum.requests(now)
    assert begins == [BeginRequest(key(each), 1) for each in (2, 3)]
    quorum.on_begin_answer(begins[0], now)  # type: ignore[arg-type]
    assert quorum.requests(now) == begins[1:]
    quorum.on_fetch(key(3), 0, now)
    assert quorum.requests(now) == []
    assert quorum.next_request_ms(()) == now + 1000
    assert quorum.next_request_ms({2, 3}) is None
    assert len(quorum.requests(now + 1000)) == 2


def test_who_led_and_removed_itself_looks_for_a_leader_after_a_start() -> None:
    """The removed voter is not told of the next epoch: it was stuck for ever."""
    quorum = core(2, 3, stored=QuorumStateFile(leader_id=1, leader_epoch=4), end=9, last_epoch=4)
    quorum.start(0)
    assert quorum.role is Role.RESIGNED and not quorum.is_voter
    assert quorum.deadline_ms is not None
    quorum.on_timeout(quorum.deadline_ms)
    assert (quorum.role, quorum.deadline_ms) == (Role.UNATTACHED, None)
    quorum.heard(3, 6, 3000)
    assert (quorum.role, quorum.leader_id, quorum.epoch) == (Role.FOLLOWER, 3, 6)


def test_a_leader_to_which_no_majority_comes_resigns() -> None:
    quorum = leader_of_three()
    quorum.on_appended(9, 1)
    first = quorum.deadline_ms
    assert first is not None
    quorum.on_fetch(key(9), 1, first - 2)  # an observer
    quorum.on_fetch(key(3), 4, first - 1)
    assert quorum.on_timeout(first) == NOTHING
    assert quorum.deadline_ms == first - 1 + 3000
    quorum.on_fetch(key(2), 2, first)
    quorum.on_timeout(quorum.deadline_ms + 10_000)
    assert (quorum.role, quorum.leader_id, quorum.epoch) == (Role.RESIGNED, -1, 1)
    farewells = quorum.requests(0)
    assert farewells == [EndRequest(key(each), 1, (key(3), key(2))) for each in (2, 3)]
    quorum.on_end_answer(farewells[0])  # type: ignore[arg-type]
    assert quorum.requests(0) == farewells[1:]
    quorum.on_timeout(99_999)
    assert quorum.role is Role.PROSPECTIVE


def test_who_has_most_stands_first_when_the_leader_goes() -> None:
    quorum = follower()
    quorum.on_fetched(2, 4, 2)
    quorum.on_end(2, 4, [key(3), key(1)], 10)
    assert quorum.deadline_ms == 10 + 500
    assert quorum.on_vote(key(3), 4, LogEnd(4, 99), 11, pre_vote=True)[1]
    first = follower()
    first.on_end(2, 4, [key(1), key(3)], 10)
    first.on_timeout(10)
    assert first.role is Role.PROSPECTIVE
    other = follower()
    other.on_end(3, 3, [key(1)], 10)
    assert other.deadline_ms == 2000


def test_what_a_leader_answered_before_it_gave_up_keeps_nobody_from_standing() -> None:
    """It arrives later, on another connection. (Kafka's followers wait for another fetch timeout then.)"""
    quorum = follower()
    quorum.on_fetched(2, 4, 2)
    quorum.on_end(2, 4, [key(3), key(1)], 10)
    quorum.on_fetched(2, 4, 11)
    assert quorum.deadline_ms == 10 + 500
    assert quorum.on_vote(key(3), 4, LogEnd(4, 99), 12, pre_vote=True)[1]
    first = follower()
    first.on_end(2, 4, [key(1), key(3)], 10)
    first.on_timeout(10)
    first.on_fetched(2, 4, 11)
    assert first.role is Role.PROSPECTIVE
    first.heard(3, 5, 12)
    first.on_fetched(3, 5, 13)
    assert (first.role, first.has_fetched, first.deadline_ms) == (Role.FOLLOWER, True, 13 + 2000)


def test_nothing_is_committed_before_it_is_fsynced() -> None:
    quorum = core(end=10, last_epoch=3)
    quorum.start(0)
    quorum.on_appended(12, 4)
    assert (quorum.high_watermark, quorum.is_active) == (-1, False)
    assert quorum.on_flushed(12, 5).high_watermark == 12
    assert quorum.is_active
    quorum.on_appended(20, 4)
    assert quorum.high_watermark == 12
    assert quorum.on_flushed(12, 6) == NOTHING
    assert quorum.on_flushed(20, 7).high_watermark == 20


def test_records_of_earlier_epochs_alone_commit_nothing() -> None:
    quorum = core(end=10, last_epoch=3)
    quorum.start(0)
    assert quorum.on_flushed(10, 5) == NOTHING
    quorum.on_appended(11, 4)
    assert quorum.on_flushed(11, 5).high_watermark == 11


def test_the_high_watermark_is_what_a_majority_has() -> None:
    quorum = leader_of_three()
    quorum.on_appended(10, 1)
    assert quorum.on_flushed(10, 1) == NOTHING
    assert quorum.on_fetch(key(2), 4, 2).high_watermark == 4
    assert quorum.on_fetch(key(3), 7, 3).high_watermark == 7
    assert quorum.on_fetch(key(2), 10, 4).high_watermark == 10
    assert quorum.on_fetch(key(3), 2, 5) == NOTHING  # never back


def test_an_observer_commits_nothing() -> None:
    quorum = leader_of_three()
    quorum.on_appended(10, 1)
    quorum.on_flushed(10, 1)
    assert quorum.on_fetch(key(9), 10, 2) == NOTHING
    assert quorum.leadership is not None
    assert quorum.leadership.observers[key(9)].last_caught_up_ms == 2


def test_claims_beyond_the_log_are_refused() -> None:
    quorum = leader_of_three()
    with pytest.raises(ValueError, match="claims"):
        quorum.on_fetch(key(2), 99, 1)
    with pytest.raises(ValueError, match="moved back"):
        quorum.on_appended(0, 1)


def test_who_resigned_commits_nothing_more() -> None:
    quorum = leader_of_three()
    quorum.on_appended(10, 1)
    quorum.resign(5)
    assert quorum.role is Role.RESIGNED
    assert quorum.on_flushed(10, 6) == quorum.on_fetch(key(2), 10, 6) == NOTHING


def test_a_voter_that_comes_back_with_an_empty_disk_is_another_one() -> None:
    quorum = leader_of_three()
    quorum.on_appended(10, 1)
    quorum.on_flushed(10, 1)
    wiped = ReplicaKey(2, UUID(int=99))
    assert quorum.on_fetch(wiped, 10, 2) == NOTHING
    assert quorum.leadership is not None
    assert quorum.leadership.observers[wiped].end_offset == 10
    assert quorum.on_fetch(key(2), 10, 3).high_watermark == 10


def test_a_voter_whose_directory_is_not_known_may_have_any() -> None:
    """A static quorum names nodes alone."""
    quorum = lead(QuorumCore.of(key(1), [ReplicaKey(1), ReplicaKey(2)], None, LogEnd(0, 0), Random(1), TIMING))
    quorum.on_appended(5, 1)
    assert quorum.on_flushed(5, 1) == NOTHING
    assert quorum.on_fetch(ReplicaKey(2, UUID(int=7)), 5, 2).high_watermark == 5


def test_an_observer_that_is_gone_is_dropped() -> None:
    quorum = leader_of_three()
    quorum.on_fetch(key(8), 0, 1)
    quorum.on_fetch(key(9), 0, OBSERVER_EXPIRY_MS)
    assert [each.key for each in quorum.described(2)[1]] == [key(8), key(9)]
    quorum.on_fetch(key(10), 0, OBSERVER_EXPIRY_MS + 2)
    assert [each.key for each in quorum.described(2)[1]] == [key(9), key(10)]


def test_the_leader_describes_itself_as_caught_up() -> None:
    quorum = leader_of_three()
    quorum.on_appended(4, 1)
    quorum.on_flushed(4, 1)
    quorum.on_fetch(key(2), 4, 3)
    voters, observers = quorum.described(9)
    assert [(each.key.node_id, each.last_fetch_ms, each.last_caught_up_ms) for each in voters] == [
        (1, 9, 9),
        (2, 3, 3),
        (3, -1, -1),
    ]
    assert observers == []
    assert quorum.described(10)[0][0].last_fetch_ms == 10, "to look changes nothing"


# The log of a follower, and the voters in it.


def test_the_log_is_cut_down_to_what_is_committed_and_no_further() -> None:
    quorum = follower(end=10)
    quorum.on_leader_high_watermark(7)
    quorum.on_truncated(8, 3)
    assert quorum.log_end == LogEnd(3, 8)
    with pytest.raises(ValueError, match="below the high watermark"):
        quorum.on_truncated(6, 3)


def test_a_follower_commits_what_the_leader_says_and_it_has() -> None:
    quorum = core(1, 2, 3, end=5, stored=QuorumStateFile(leader_epoch=3))
    ready = quorum.heard(2, 4, 0)
    assert (quorum.role, quorum.leader_id, quorum.epoch) == (Role.FOLLOWER, 2, 4)
    assert ready.persist is not None and ready.persist.leader_id == 2
    assert quorum.heard(2, 4, 0) == NOTHING
    assert quorum.on_leader_high_watermark(9) == Ready(high_watermark=5)
    assert quorum.on_leader_high_watermark(3) == NOTHING
    quorum.on_appended(8, 4)
    assert quorum.on_flushed(8, 1) == NOTHING
    assert quorum.high_watermark == 5


def test_a_snapshot_in_place_of_the_log_is_committed() -> None:
    quorum = follower()
    quorum.on_snapshot(20, 3, None)
    assert (quorum.end_offset, quorum.high_watermark) == (20, 20)


def test_voters_count_as_soon_as_the_log_says_so_and_until_it_is_cut() -> None:
    quorum = follower(2, 4, 2, 3)
    assert not quorum.is_voter and not quorum.may_stand
    more = VoterSet.of(key(each) for each in (1, 2, 3))
    quorum.on_appended(7, 4)
    quorum.on_configuration(6, more.record(), 50)
    assert quorum.is_voter and quorum.may_stand and quorum.deadline_ms == 2000
    quorum.on_truncated(6, 4, 60)
    assert not quorum.is_voter and not quorum.may_stand and quorum.deadline_ms is None
    quorum.on_appended(7, 5)
    quorum.on_configuration(6, more.record(), 70)
    quorum.on_leader_high_watermark(7)
    assert len(quorum.configurations.entries) == 1, "what is committed is not undone"


def test_a_voter_stands_for_election_until_its_removal_is_committed() -> None:
    """A leader that removed itself went before the other voter had the record of it: that one needs this one's vote,
    and this one may not give it to a shorter log. Nobody else can lead (Raft thesis, 4.2.2)."""
    both, rest = (VoterSet.of(key(each) for each in ids) for ids in ((1, 2), (2,)))
    configurations = Configurations(Configuration(-1, 1, both))
    configurations.add(6, rest.record())
    quorum = QuorumCore.of(
        key(1), configurations, QuorumStateFile(leader_id=1, leader_epoch=4), LogEnd(4, 7), Random(1)
    )
    quorum.start(0)
    assert quorum.role is Role.RESIGNED and not quorum.is_voter and quorum.may_stand
    for role in (Role.PROSPECTIVE, Role.CANDIDATE):
        if quorum.role is Role.RESIGNED:
            assert quorum.deadline_ms is not None
            quorum.on_timeout(quorum.deadline_ms)
        assert quorum.role is role
        (request,) = quorum.requests(0)
        assert isinstance(request, VoteRequest) and request.to == key(2)
        quorum.on_vote_answer(request, 5, granted=True)
    assert quorum.is_leader and quorum.epoch == 5
    quorum.on_appended(8, 5)
    quorum.on_flushed(8, 6)
    assert quorum.high_watermark < 7, "alone it commits nothing, not even its removal"
    quorum.on_fetch(key(2), 8, 7)
    assert quorum.high_watermark == 8 and not quorum.may_stand


def test_an_observer_to_which_no_leader_answers_votes_for_another_one() -> None:
    """A voter that nobody has told of its addition may have to."""
    quorum = follower(2, 4, 2, 3)
    quorum.on_fetched(2, 4, 100)
    longer = LogEnd(quorum.last_epoch, quorum.end_offset + 1)
    assert not quorum.on_vote(key(3), 4, longer, 2000, pre_vote=True)[1]
    assert quorum.deadline_ms == 2100
    quorum.on_timeout(2100)
    assert quorum.role is Role.FOLLOWER and quorum.deadline_ms is None
    assert quorum.on_vote(key(3), 4, longer, 2101, pre_vote=True)[1]


def test_a_leader_counts_new_voters_at_once() -> None:
    quorum = lead(core(1, kraft_version=1))
    quorum.on_flushed(3, 1)
    quorum.on_fetch(key(2), 3, 2)
    more = VoterSet.of(key(each) for each in (1, 2))
    quorum.on_appended(4, 1)
    quorum.on_configuration(3, more.record(), 3)
    assert quorum.on_flushed(4, 4) == NOTHING
    assert quorum.deadline_ms == 3003
    assert quorum.on_fetch(key(2), 4, 5).high_watermark == 4
    assert quorum.leadership is not None and not quorum.leadership.observers
