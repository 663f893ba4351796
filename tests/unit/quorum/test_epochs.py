"""Which later epochs of others a replica adopts: what elections can have reached, or what a majority has reached."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.quorum.core import QuorumCore
from ottla.quorum.election import LogEnd
from ottla.quorum.epochs import (
    CLAIM_MS_MAX,
    EPOCH_LAST,
    EPOCHS_AHEAD_MAX,
    EPOCHS_LEFT_MIN,
    EPOCHS_PER_SECOND,
    EpochLimit,
    is_among_the_last,
    renumbered,
    was_renumbered,
)
from ottla.quorum.state import Role
from ottla.quorum.voters import ReplicaKey

KEYS = [ReplicaKey(node_id, UUID(int=node_id)) for node_id in range(1, 6)]
FAR = EPOCHS_AHEAD_MAX + 9


def replica(epoch: int = 7, last_epoch: int = 7, *, voters: int = 3, me: int = 0, end: int = 50) -> QuorumCore:
    stored = QuorumStateFile(leader_epoch=epoch, data_version=0)
    core = QuorumCore.of(KEYS[me], KEYS[:voters], stored, LogEnd(last_epoch, end), random.Random(5))
    core.start(0)
    return core


@pytest.mark.parametrize(
    ("own", "claimed", "allowed"),
    [
        (7, 8, True),
        (7, 8 + EPOCHS_AHEAD_MAX, True),
        (7, 9 + EPOCHS_AHEAD_MAX, False),
        (7, EPOCH_LAST, False),
        (EPOCH_LAST - 100, EPOCH_LAST - 99, True),
        (EPOCH_LAST - 100, EPOCH_LAST - 49, True),
        (EPOCH_LAST - 100, EPOCH_LAST - 48, False),
        (EPOCH_LAST - 1, EPOCH_LAST, True),
        (EPOCH_LAST, EPOCH_LAST + 1, False),
    ],
)
def test_an_epoch_is_allowed_that_elections_can_have_reached(own: int, claimed: int, allowed: bool) -> None:
    """And never more than half of those that are left: another election stays possible."""
    assert EpochLimit().allows(own, claimed, 0) is allowed


def test_epochs_that_are_skipped_are_counted() -> None:
    """Many small steps get no further than one large one."""
    limit, own = EpochLimit(), 7
    while limit.allows(own, own + 1001, 0):
        limit.spend(own, own + 1001, 0)
        own += 1001
    assert own <= 7 + EPOCHS_AHEAD_MAX + EPOCHS_AHEAD_MAX // 1000
    assert limit.allows(own, own + 1, 0), "the next one is free"
    assert not limit.allows(own, own + 1001, 0)
    assert limit.allows(own, own + 1001, 1000 * 1000 // EPOCHS_PER_SECOND)


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize("epoch", [FAR, 1 << 30, EPOCH_LAST - 1, EPOCH_LAST])
def test_no_request_moves_a_voter_far_ahead(epoch: int, pre_vote: bool) -> None:
    core = replica()
    _, granted = core.on_vote(KEYS[1], epoch, LogEnd(7, 90), 0, pre_vote=pre_vote)
    core.heard(2, epoch, 0, from_leader=True)
    core.heard(-1, epoch, 0)
    core.on_end(2, epoch, KEYS, 0)
    core.on_fetched(2, epoch, 0)
    assert (granted, core.epoch, core.role) == (False, 7, Role.UNATTACHED)
    _, granted = core.on_vote(KEYS[1], 8, LogEnd(7, 90), 0, pre_vote=False)
    assert granted, "the next election goes on"


@pytest.mark.parametrize(("voters", "needed"), [(3, 2), (5, 3)])
def test_what_a_majority_of_the_voters_has_reached_is_believed(voters: int, needed: int) -> None:
    """A replica that was away for longer than the limit follows a real leader."""
    core = replica(voters=voters)
    for number in range(1, needed):
        core.heard(2, FAR + 1, 0, voter=KEYS[number].node_id)
        core.heard(2, FAR + 1, 0, voter=KEYS[number].node_id)
        core.heard(2, FAR + 1, 0, voter=99)
        assert core.epoch == 7
    core.heard(2, FAR, 0, voter=KEYS[needed].node_id)
    assert (core.epoch, core.leader_id) == (FAR, 2)
    core.heard(2, FAR + 1, 0, from_leader=True)
    assert core.epoch == FAR + 1


def test_two_of_five_prove_nothing() -> None:
    core = replica(voters=5)
    for number in (1, 2):
        core.heard(-1, EPOCH_LAST, 0, voter=KEYS[number].node_id)
    assert core.epoch == 7


def test_voters_that_were_wrong_at_different_times_are_no_majority() -> None:
    core = replica()
    core.heard(-1, FAR, 0, voter=2)
    core.heard(-1, FAR, CLAIM_MS_MAX + 1, voter=3)
    assert core.epoch == 7, "the first one said it long ago"
    core = replica()
    core.heard(-1, FAR, 0, voter=2)
    core.heard(-1, 7, 1, voter=2)
    core.heard(-1, FAR, 2, voter=3)
    assert core.epoch == 7, "the first one says something else now"


def test_an_observer_without_anything_believes_what_leaves_room() -> None:
    for end, epoch, expected in ((0, 1 << 30, 1 << 30), (0, EPOCH_LAST - 1, 0), (50, 1 << 30, 0)):
        core = replica(0, 0, me=3, end=end)
        core.heard(2, epoch, 0)
        assert core.epoch == expected


def test_the_last_epoch_is_nobodys_candidacy() -> None:
    """Nothing overflows, and no vote of that epoch is forgotten."""
    core = replica(EPOCH_LAST - 1, EPOCH_LAST - 1)
    core.on_vote(KEYS[1], EPOCH_LAST, LogEnd(EPOCH_LAST - 1, 90), 0, pre_vote=False)
    assert (core.epoch, core.stored.voted_id) == (EPOCH_LAST, 2)
    core.on_timeout(core.deadline_ms or 0)
    assert (core.epoch, core.stored.voted_id, core.role, core.deadline_ms) == (EPOCH_LAST, 2, Role.UNATTACHED, None)
    core.heard(2, EPOCH_LAST, 0, from_leader=True)
    assert core.leader_id == 2, "its leader is followed"


def test_the_only_voter_goes_by_its_log() -> None:
    """A `quorum-state` that is damaged costs it no epochs: its log has all that it ever led."""
    core = replica(EPOCH_LAST - 1, 7, voters=1)
    assert (core.epoch, core.is_leader) == (8, True)


def test_epochs_are_renumbered_in_their_order_by_one_byte() -> None:
    last = [EPOCH_LAST - EPOCHS_LEFT_MIN + 1 + each for each in (0, 1, 255, 256, 65_536, EPOCHS_LEFT_MIN - 1)]
    moved = [renumbered(each) for each in last]
    assert all(map(is_among_the_last, last)) and all(map(was_renumbered, moved))
    assert moved == sorted(set(moved)) and not any(map(is_among_the_last, moved))
    assert all(each.to_bytes(4)[1:] == to.to_bytes(4)[1:] for each, to in zip(last, moved, strict=True))
    assert renumbered(last[0] - 1) == last[0] - 1
