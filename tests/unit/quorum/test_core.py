"""Rules of the quorum, one test per claim."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.internal.quorum_records import LeaderChangeMessage, QuorumStateFile
from ottla.quorum.core import NOTHING, QuorumCore, Replica, Role


def core(*voters: int, stored: QuorumStateFile | None = None, end: int = 0, kraft_version: int = 0) -> QuorumCore:
    replicas = {voter: Replica(voter, UUID(int=voter)) for voter in voters or (1,)}
    return QuorumCore(1, replicas, stored or QuorumStateFile(), end, kraft_version)


def test_a_quorum_of_one_elects_itself_at_once() -> None:
    quorum = core()
    ready = quorum.campaign(0)
    assert quorum.role is Role.LEADER
    assert quorum.leader_id == 1
    assert ready.persist == QuorumStateFile(leader_id=1, leader_epoch=1, voters=(1,), data_version=0)
    (change,) = ready.control_records
    assert isinstance(change, LeaderChangeMessage)
    assert [voter.voter_id for voter in change.granting_voters] == [1]


@pytest.mark.parametrize(("stored", "last", "epoch"), [(0, 0, 1), (5, 3, 6), (2, 7, 8), (-1, 0, 1)])
def test_an_epoch_once_used_is_never_used_again(stored: int, last: int, epoch: int) -> None:
    quorum = core(stored=QuorumStateFile(leader_epoch=stored))
    quorum.campaign(last)
    assert quorum.epoch == epoch


def test_directories_are_named_once_voters_are_dynamic() -> None:
    ready = core(kraft_version=1).campaign(0)
    assert ready.persist == QuorumStateFile(leader_id=1, leader_epoch=1, data_version=1)
    assert ready.control_records[0].version == 1
    assert ready.control_records[0].voters[0].voter_directory_id == UUID(int=1)


def test_of_several_voters_one_alone_does_not_lead() -> None:
    quorum = core(1, 2, 3)
    ready = quorum.campaign(0)
    assert quorum.role is Role.CANDIDATE
    assert quorum.leader_id == -1
    assert ready.persist is not None
    assert ready.persist.voted_id == 1
    assert not ready.control_records


def test_only_a_voter_stands() -> None:
    with pytest.raises(ValueError, match="no voter"):
        core(2, 3).campaign(0)


def test_nothing_is_committed_before_it_is_fsynced() -> None:
    quorum = core(end=10)
    quorum.campaign(3)
    quorum.on_appended(12)
    assert quorum.high_watermark == -1
    assert quorum.on_flushed(12, 5).high_watermark == 12
    quorum.on_appended(20)
    assert quorum.high_watermark == 12
    assert quorum.on_flushed(12, 6) == NOTHING
    assert quorum.on_flushed(20, 7).high_watermark == 20


def test_records_of_earlier_epochs_alone_commit_nothing() -> None:
    quorum = core(end=10)
    quorum.campaign(3)
    assert quorum.on_flushed(10, 5) == NOTHING
    quorum.on_appended(11)
    assert quorum.on_flushed(11, 5).high_watermark == 11


def leader_of_three(end: int = 0) -> QuorumCore:
    quorum = core(1, 2, 3, end=end)
    quorum.campaign(0)
    quorum._lead(quorum.epoch, (1, 2))  # as the exchange of votes will do
    quorum.on_appended(end + 1)
    return quorum


def test_the_high_watermark_is_what_a_majority_has() -> None:
    quorum = leader_of_three()
    quorum.on_appended(10)
    assert quorum.on_flushed(10, 1) == NOTHING
    assert quorum.on_fetch(2, 4, 2).high_watermark == 4
    assert quorum.on_fetch(3, 7, 3).high_watermark == 7
    assert quorum.on_fetch(2, 10, 4).high_watermark == 10
    assert quorum.on_fetch(3, 2, 5) == NOTHING  # never back


def test_an_observer_commits_nothing() -> None:
    quorum = leader_of_three()
    quorum.on_appended(10)
    quorum.on_flushed(10, 1)
    assert quorum.on_fetch(9, 10, 2) == NOTHING
    assert quorum.observers[9].last_caught_up_ms == 2


def test_claims_beyond_the_log_are_refused() -> None:
    quorum = leader_of_three()
    with pytest.raises(ValueError, match="claims"):
        quorum.on_fetch(2, 99, 1)
    with pytest.raises(ValueError, match="moved back"):
        quorum.on_appended(0)


def test_who_resigned_commits_nothing_more() -> None:
    quorum = core()
    quorum.campaign(0)
    quorum.on_appended(1)
    quorum.resign()
    assert quorum.role is Role.RESIGNED
    assert quorum.leader_id == -1
    assert quorum.on_flushed(1, 1) == NOTHING
