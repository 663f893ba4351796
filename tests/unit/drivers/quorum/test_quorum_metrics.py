"""What the quorum node measures: commits, elections, records, and the time that it takes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from ottla.drivers.quorum import quorum_requests
from ottla.drivers.quorum.quorum_metrics import NOBODY, QuorumMetrics, state_of, vote_of
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.drivers.quorum.quorum_requests import fetch
from ottla.quorum.snapshot import data_batch
from ottla.quorum.state import Role, VoteRequest
from ottla.quorum.voters import ReplicaKey
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.drivers.parts import HeldFsyncs, new_disk, run_virtual, turns
from tests.unit.drivers.quorum.test_quorum_node import ME, OTHER, VALUE, fsynced, lead_two, quorum_node

START_S = 1000.0
SPAN_S = 40.0
"""Span of the 30-second window that 1000 lies in and the one before it."""


class Time:
    """Moves when a test says so."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s

    def pass_ms(self, milliseconds: float) -> None:
        self.now_s += milliseconds / 1000


def timed(node: QuorumNode) -> Time:
    """From now on the node measures with a stopped clock, and has measured nothing yet."""
    time = Time()
    role = node.core.role
    node.metrics = QuorumMetrics(elapsed_s=time)
    node.metrics.in_role(role)
    return time


def alone(fs: SimulatedFileSystem) -> tuple[QuorumNode, Time]:
    node = quorum_node(fs)
    node.start()
    return node, timed(node)


class Slow:
    """Lets calls take time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def make(self, owner: Any, name: str, time: Time, milliseconds: float) -> None:
        real = getattr(owner, name)

        def slow(*args: Any) -> Any:
            time.pass_ms(milliseconds)
            return real(*args)

        self._monkeypatch.setattr(owner, name, slow)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


def test_a_commit_takes_from_the_append_to_the_high_watermark() -> None:
    async def main() -> None:
        fs = HeldFsyncs()
        node, time = alone(fs)
        assert math.isnan(node.metrics.values()["commit_latency_avg"])
        fs.close_gate()
        node.append([VALUE] * 4, 5)
        await turns()
        time.pass_ms(30)
        node.append([VALUE], 6)
        time.pass_ms(50)
        assert math.isnan(node.metrics.values()["commit_latency_avg"]), "nothing is committed yet"
        fs.open_gate()
        await turns()
        assert node.high_watermark == node.end_offset
        found = node.metrics.values()
        assert found["commit_latency_avg"] == pytest.approx((80 / 4 + 50) / 2)
        assert found["commit_latency_max"] == pytest.approx(50)
        assert found["append_records_rate"] == pytest.approx(5 / (SPAN_S + 0.08))
        assert found["fetch_records_rate"] == 0
        await node.stop()

    run_virtual(main())


def test_a_commit_that_others_must_help_with_takes_until_they_have_fetched() -> None:
    async def main() -> None:
        node = lead_two(new_disk())
        time = timed(node)
        end = node.append([VALUE], 5)
        await fsynced(node)
        time.pass_ms(70)
        fetch(node, OTHER, node.epoch, end, node.epoch, 1 << 20)
        assert node.high_watermark == end
        assert node.metrics.values()["commit_latency_max"] == pytest.approx(70)

    run_virtual(main())


def test_what_was_not_committed_before_another_node_leads_has_no_commit_time() -> None:
    async def main() -> None:
        node = lead_two(new_disk())
        time = timed(node)
        node.append([VALUE], 5)
        await fsynced(node)
        node.heard(2, node.epoch + 1, {})
        time.pass_ms(70)
        node.advance(node.end_offset)
        assert node.high_watermark == node.end_offset
        assert math.isnan(node.metrics.values()["commit_latency_avg"])

    run_virtual(main())


def test_records_of_an_epochs_beginning_are_appended_too(slow: Slow) -> None:
    """The LeaderChangeMessage of the only voter."""

    async def main() -> None:
        node = quorum_node(new_disk())
        time = timed(node)
        slow.make(node.log, "append", time, 2)
        node.start()
        assert node.metrics.values()["append_records_rate"] == pytest.approx(node.end_offset / (SPAN_S + 0.002))
        await node.stop()

    run_virtual(main())


def test_a_follower_counts_what_it_fetched() -> None:
    async def main() -> None:
        follower = quorum_node(new_disk(), ME, OTHER, me=OTHER)
        follower.start()
        timed(follower)
        follower.heard(1, 7, {})
        follower.append_fetched(data_batch([VALUE] * 6, 0, 7, 1))
        found = follower.metrics.values()
        assert found["fetch_records_rate"] == pytest.approx(6 / SPAN_S)
        assert found["append_records_rate"] == 0
        await fsynced(follower)

    run_virtual(main())


def test_an_election_takes_from_standing_to_leading() -> None:
    async def main() -> None:
        node = quorum_node(new_disk(), ME, OTHER)
        node.start()
        time = timed(node)
        node.take(node.core.on_timeout(node.core.deadline_ms or 0))
        assert node.core.role is Role.PROSPECTIVE
        while not node.is_leader:
            time.pass_ms(25)
            for request in node.core.requests(0):
                assert isinstance(request, VoteRequest)
                node.take(node.core.on_vote_answer(request, node.now_ms(), granted=True))
        found = node.metrics.values()
        assert found["election_latency_avg"] == found["election_latency_max"] == pytest.approx(50)
        await fsynced(node)

    run_virtual(main())


def test_an_election_that_another_node_wins_takes_until_that_is_known() -> None:
    """With a lost attempt in between."""

    async def main() -> None:
        node = quorum_node(new_disk(), ME, OTHER)
        node.start()
        time = timed(node)
        for _ in range(2):
            node.take(node.core.on_timeout(node.core.deadline_ms or 0))
            assert node.core.role is Role.PROSPECTIVE
            time.pass_ms(100)
            (request,) = node.core.requests(0)
            assert isinstance(request, VoteRequest)
            node.take(node.core.on_vote_answer(request, node.now_ms(), granted=False))
            assert node.core.role is Role.UNATTACHED
        assert math.isnan(node.metrics.values()["election_latency_max"])
        time.pass_ms(5)
        node.heard(2, 1, {})
        assert node.core.role is Role.FOLLOWER
        assert node.metrics.values()["election_latency_max"] == pytest.approx(205)
        time.pass_ms(1000)
        node.heard(2, 2, {})
        found = node.metrics.values()
        assert found["election_latency_avg"] == pytest.approx(205), "who never stood has no election of its own"

    run_virtual(main())


def test_the_only_voter_is_elected_in_the_time_that_its_disk_takes(slow: Slow) -> None:
    async def main() -> None:
        node = quorum_node(new_disk())
        time = timed(node)
        slow.make(node.log, "write_quorum_state", time, 12)
        node.start()
        assert node.is_leader
        assert node.metrics.values()["election_latency_max"] == pytest.approx(12)
        await node.stop()

    run_virtual(main())


def test_a_node_is_idle_when_it_does_nothing_for_the_quorum(slow: Slow) -> None:
    async def main() -> None:
        node, time = alone(new_disk())
        assert node.metrics.values()["poll_idle_ratio_avg"] == 1
        slow.make(node.log, "append", time, 4_000)
        node.append([VALUE], 5)
        await fsynced(node)
        assert node.metrics.values()["poll_idle_ratio_avg"] == pytest.approx(1 - 4 / (SPAN_S + 4))
        time.pass_ms(6_000)
        assert node.metrics.values()["poll_idle_ratio_avg"] == pytest.approx(1 - 4 / (SPAN_S + 10))
        time.pass_ms(60_000)
        assert node.metrics.values()["poll_idle_ratio_avg"] == 1, "it is forgotten"
        await node.stop()

    run_virtual(main())


@pytest.mark.parametrize("name", ["fetched", "asked", "flushed"])
def test_what_a_node_does_is_work(name: str, slow: Slow) -> None:
    """Steps of a follower, of a leader that is asked, of a node whose fsync ended."""

    async def main() -> None:
        if name == "fetched":
            node = quorum_node(new_disk(), ME, OTHER, me=OTHER)
            node.start()
            time = timed(node)
            node.heard(1, 7, {})
            slow.make(node.log, "append", time, 500)
            node.append_fetched(data_batch([VALUE], 0, 7, 1))
        elif name == "asked":
            node = lead_two(new_disk())
            await fsynced(node)
            time = timed(node)
            slow.make(quorum_requests, "divergence", time, 500)
            fetch(node, OTHER, node.epoch, node.end_offset, node.epoch, 1 << 20)
        else:
            node, time = alone(new_disk())
            slow.make(node.log, "note_fsynced", time, 500)
            node.append([VALUE], 5)
        await fsynced(node)
        assert node.metrics.values()["poll_idle_ratio_avg"] == pytest.approx(1 - 0.5 / (SPAN_S + 0.5))

    run_virtual(main())


def test_state_and_vote_are_those_of_kafka() -> None:
    """As the `KafkaRaftMetrics` of Kafka 4.3: a follower says whom it voted for, and who resigned says nothing."""
    node = quorum_node(new_disk(), ME, OTHER)
    core = node.core
    assert (state_of(core), vote_of(core)) == ("unattached", NOBODY)
    core.stored = replace(core.stored, voted_id=OTHER.node_id, voted_directory_id=OTHER.directory_id)
    voted_for_other = ReplicaKey(OTHER.node_id, OTHER.directory_id)
    found = {}
    for role in Role:
        core.role = role
        found[role] = (state_of(core), vote_of(core))
    assert found == {
        Role.UNATTACHED: ("unattached-voted", voted_for_other),
        Role.PROSPECTIVE: ("prospective-voted", voted_for_other),
        Role.CANDIDATE: ("candidate", ME),
        Role.LEADER: ("leader", ME),
        Role.FOLLOWER: ("follower", voted_for_other),
        Role.RESIGNED: ("resigned", NOBODY),
    }


def test_one_that_only_follows_is_an_observer() -> None:
    core = quorum_node(new_disk(), OTHER, me=ME).core
    core.role = Role.FOLLOWER
    assert (state_of(core), vote_of(core)) == ("observer", NOBODY)
