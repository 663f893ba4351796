"""Changes of the voters: what a replica asks for, and what a leader makes of it."""

from __future__ import annotations

from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.schemas.records import KRaftVersionRange, KRaftVersionRecord, Voter, VoterEndpoint
from ottla.quorum import changes
from ottla.quorum.core import QuorumCore
from ottla.quorum.election import LogEnd
from ottla.quorum.membership import Add, Change, Remove, Update, wanted_change
from ottla.quorum.state import Role
from ottla.quorum.voters import Configuration, Configurations, ReplicaKey, VoterSet, voter
from tests.unit.quorum.test_core import TIMING, key, lead

LISTENER = "CONTROLLER"


def at(node_id: int, port: int = 9093, directory: int | None = None) -> Voter:
    known = key(node_id if directory is None else directory).directory_id
    return voter(ReplicaKey(node_id, known), [VoterEndpoint(LISTENER, "localhost", port)])


def replica(*voters: Voter, kraft_version: int = 1, can_vote: bool = True, own: Voter | None = None) -> QuorumCore:
    configurations = Configurations(Configuration(0, kraft_version, VoterSet(voters)))
    found = QuorumCore.of(key(1), configurations, None, LogEnd(0, 0), Random(1), TIMING, can_vote=can_vote)
    found.own = own or at(1)
    return found


def following(core: QuorumCore) -> QuorumCore:
    core.start(0)
    core.heard(2, 4, 0)
    return core


def leading(*voters: Voter, kraft_version: int = 1) -> QuorumCore:
    """A leader that has committed the first record of its epoch."""
    core = lead(replica(*voters, kraft_version=kraft_version))
    for each in voters:
        if each.voter_id != 1:
            core.on_fetch(ReplicaKey(each.voter_id, each.voter_directory_id), core.end_offset, 10)
    core.on_flushed(core.end_offset, 10)
    assert core.is_active
    return core


def refusal(change: object, *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        change(*arguments)  # type: ignore[operator]
    return caught.value.code


@pytest.mark.parametrize(
    ("core", "joins", "told", "wanted"),
    [
        (replica(at(2)), True, -1, Add(at(1))),
        (replica(at(2)), False, -1, None),
        (replica(at(2), kraft_version=0), True, -1, None),
        (replica(at(2), can_vote=False), True, -1, None),
        (replica(at(2), at(1, directory=9)), True, -1, Remove(ReplicaKey(1, key(9).directory_id))),
        (replica(at(2), at(1, directory=9)), False, -1, None),
        (replica(at(2), at(1)), True, -1, None),
        (replica(at(2), at(1, port=1)), False, 4, Update(at(1))),
        (replica(at(2), at(1).replaced(kraft_version_feature=KRaftVersionRange(0, 2))), False, 4, Update(at(1))),
        (replica(at(2), at(1), kraft_version=0), False, 3, Update(at(1))),
        (replica(at(2), at(1), kraft_version=0), False, 4, None),
    ],
)
def test_what_a_replica_asks_the_leader_for(core: QuorumCore, joins: bool, told: int, wanted: Change | None) -> None:
    assert wanted_change(following(core), joins=joins, told=told) == wanted


def test_who_follows_nobody_asks_for_nothing() -> None:
    core = replica(at(2))
    core.start(0)
    assert core.role is Role.UNATTACHED
    assert wanted_change(core, joins=True, told=-1) is None


def test_a_leader_notes_its_own_new_address_with_the_first_record_of_its_epoch() -> None:
    core = replica(at(1, port=1))
    ready = core.start(0)
    (_, level, voters) = ready.control_records
    assert (level, voters) == (KRaftVersionRecord(0, 1), VoterSet([at(1)]).record())
    assert len(replica(at(1)).start(0).control_records) == 1, "nothing is new"


def test_an_upgrade_needs_to_know_all_voters() -> None:
    core = leading(at(1, 0, 0), at(2, 0, 0), kraft_version=0)
    assert refusal(changes.upgraded, core, 1) == ErrorCode.invalid_update_version
    assert changes.upgraded(core, 0) == ()
    assert changes.updated(core, core.epoch, at(2), LISTENER) is None
    level, voters = changes.upgraded(core, 1)
    assert (level, voters) == (KRaftVersionRecord(0, 1), VoterSet([at(1), at(2)]).record())
    old = at(2).replaced(kraft_version_feature=KRaftVersionRange(0, 0))
    assert changes.updated(core, core.epoch, old, LISTENER) is None
    assert refusal(changes.upgraded, core, 1) == ErrorCode.invalid_update_version
    assert refusal(changes.check_leader, core, "adding") == ErrorCode.unsupported_version


def test_there_is_no_way_back_to_a_static_quorum() -> None:
    core = leading(at(1), at(2))
    assert changes.upgraded(core, 1) == ()
    assert refusal(changes.upgraded, core, 0) == ErrorCode.invalid_update_version


def test_what_a_voter_says_of_itself_gets_into_the_log() -> None:
    core = leading(at(1), at(2))
    epoch = core.epoch
    assert changes.updated(core, epoch, at(2), LISTENER) is None, "nothing is new"
    found = changes.updated(core, epoch, at(2, port=7), LISTENER)
    assert found == VoterSet([at(1), at(2, port=7)]).record()
    for code, said, of in (
        (ErrorCode.voter_not_found, at(3), epoch),
        (ErrorCode.voter_not_found, at(2, directory=9), epoch),
        (ErrorCode.invalid_request, at(2).replaced(endpoints=()), epoch),
        (ErrorCode.invalid_request, at(2).replaced(kraft_version_feature=KRaftVersionRange(0, 0)), epoch),
        (ErrorCode.fenced_leader_epoch, at(2), epoch - 1),
        (ErrorCode.unknown_leader_epoch, at(2), epoch + 1),
    ):
        assert refusal(changes.updated, core, of, said, LISTENER) == code


def test_who_is_added_supports_the_level_and_has_caught_up() -> None:
    core = leading(at(1), at(2))
    new = at(3)
    assert refusal(changes.added, core, new, 20) == ErrorCode.request_timed_out
    core.on_fetch(ReplicaKey(3, new.voter_directory_id), core.end_offset, 20)
    old = new.replaced(kraft_version_feature=KRaftVersionRange(0, 0))
    assert refusal(changes.added, core, old, 20) == ErrorCode.invalid_request
    assert changes.added(core, new, 20) == VoterSet([at(1), at(2), new]).record()
    assert refusal(changes.check_new, core, at(2)) == ErrorCode.duplicate_voter
    late = changes.CAUGHT_UP_MS + 21
    assert refusal(changes.added, core, new, late) == ErrorCode.request_timed_out


def test_one_change_at_a_time() -> None:
    core = leading(at(1), at(2))
    core.on_configuration(core.end_offset, VoterSet([at(1), at(2), at(3)]).record(), 20)
    core.on_appended(core.end_offset + 1, core.epoch)
    for change in (
        lambda: changes.check_new(core, at(4)),
        lambda: changes.removed(core, key(2), 20),
        lambda: changes.updated(core, core.epoch, at(2, port=7), LISTENER),
    ):
        assert refusal(change) == ErrorCode.request_timed_out


def test_no_voter_goes_without_which_there_is_no_majority() -> None:
    """Voter 3 was lost with its disk. It may go; not one of the two that are left, nor the leader itself."""
    core = leading(at(1), at(2), at(3))
    core.on_fetch(key(2), core.end_offset, 5_000)
    core.on_flushed(core.end_offset, 5_000)
    for each in (1, 2):
        assert refusal(changes.removed, core, key(each), 5_000) == ErrorCode.invalid_request
    assert changes.removed(core, key(3), 5_000) == VoterSet([at(1), at(2)]).record()
    core.on_fetch(key(3), core.end_offset, 5_001)
    assert changes.removed(core, key(1), 5_001) == VoterSet([at(2), at(3)]).record()


def test_a_leader_commits_in_its_own_epoch_before_it_changes_the_voters() -> None:
    """Else two leaders might each have a majority for a change that the other knows nothing of (KIP-853)."""
    core = leading(at(1), at(2), at(3))
    core.on_configuration(core.end_offset, VoterSet([at(1), at(2)]).record(), 20)
    core.on_appended(core.end_offset + 1, core.epoch)
    core.on_fetch(key(2), core.end_offset, 20)
    core.on_flushed(core.end_offset, 20)
    before = core.high_watermark
    assert before == core.end_offset and core.configurations.newest.offset < before

    core.heard(2, core.epoch + 1, 30)  # and the next epoch is its own again
    core.on_timeout(core.deadline_ms or 0)
    lead(core, 40)
    assert core.is_leader and core.high_watermark == before, "all that was before it is committed"
    spare = at(4)
    core.on_fetch(ReplicaKey(4, spare.voter_directory_id), core.end_offset, 50)
    wanted = (
        lambda: changes.added(core, spare, 50),
        lambda: changes.removed(core, key(2), 60),
        lambda: changes.updated(core, core.epoch, at(2, port=7), LISTENER),
        lambda: changes.upgraded(core, 1),
    )
    for change in wanted:
        assert refusal(change) == ErrorCode.request_timed_out
    core.on_flushed(core.end_offset, 60)
    assert refusal(wanted[0]) == ErrorCode.request_timed_out, "on the leader's disk alone"
    core.on_fetch(key(2), core.end_offset, 60)
    assert changes.added(core, spare, 60) == VoterSet([at(1), at(2), spare]).record()
    for change in wanted[1:]:
        change()
