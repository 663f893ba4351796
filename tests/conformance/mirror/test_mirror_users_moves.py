"""A mirror of SCRAM users whose source loses its leading controller, and that is killed itself between its writes.

Real processes: what only this finds is whether the reader follows the leader of a quorum of three that moves, and
whether a mirror that died left behind what the next one makes good.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.mirror.mirror import Mirror
from peers.kafka import start_fast
from peers.kafka.cluster import KafkaCluster
from tests.cluster.admin import brokers, until
from tests.cluster.processes import ottla_quorum, start_together
from tests.cluster.quorum.test_quorum import QUICK, leader_of
from tests.conformance.mirror.logins import may_log_in, secured_node, upserted
from tests.conformance.mirror.users_follower import route


class OttlaQuorum:
    """As `KafkaCluster`: three nodes that are both broker and controller."""

    def __init__(self, directory: Path) -> None:
        self.nodes = ottla_quorum(directory, settings=QUICK)
        self.addresses = {number: node.bootstrap for number, node in enumerate(self.nodes, start=1)}
        self.controllers = ",".join(node.settings["listeners"].rpartition("//")[2] for node in self.nodes)

    def kill(self, node: int) -> None:
        self.nodes[node - 1].kill()

    def restart(self, node: int) -> None:
        self.nodes[node - 1].begin()
        self.nodes[node - 1].wait_ready()

    def __enter__(self) -> OttlaQuorum:
        start_together(self.nodes)
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.kill()


class ThreeOfKafka(KafkaCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, heap="384m", settings=QUICK, flags=start_fast("4.4"), release="4.4")
        self.controllers = self.peers[1].controllers


class Sides:
    """Three nodes that vote together, and an Ottla that takes their users."""

    def __init__(self, directory: Path, source: OttlaQuorum | ThreeOfKafka) -> None:
        self.source = source
        self.destination = secured_node(directory / "destination")
        self.directory = directory
        self.running = dict(source.addresses)
        self.bootstrap = ",".join(source.addresses.values())
        self.controllers = source.controllers
        self._run = 0

    def leader(self) -> int:
        """Waits until all that run agree about it."""
        return until(lambda: leader_of([*self.running.values()]), lambda found: found in self.running)

    def kill(self, node: int) -> None:
        """Returns when the others know: librdkafka asks nobody else for a controller that it was sent to and that is
        gone, for as long as a request may take."""
        self.source.kill(node)
        del self.running[node]
        for address in self.running.values():
            until(lambda address=address: brokers(address)[node], bool)  # type: ignore[misc]

    def restart(self, node: int) -> None:
        self.source.restart(node)
        self.running[node] = self.source.addresses[node]

    @contextlib.contextmanager
    def follower(self, kill_at: str = "") -> Iterator[subprocess.Popen[bytes]]:
        self._run += 1
        asked = [self.bootstrap, self.controllers, self.destination.bootstrap, *([kill_at] if kill_at else [])]
        with open(self.directory / f"follower-{self._run}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.conformance.mirror.users_follower", *asked], stdout=log, stderr=log
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def said(self) -> str:
        return (self.directory / f"follower-{self._run}.log").read_text()


@pytest.fixture
def sides(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sides]:
    with request.param(tmp_path) as source:
        sides = Sides(tmp_path, source)
        with sides.destination:
            yield sides


def may_soon_log_in(sides: Sides, password: str) -> bool:
    try:
        return until(lambda: may_log_in(sides.destination, password), bool)
    except AssertionError:
        raise AssertionError(sides.said()[-3000:]) from None


@pytest.mark.parametrize(
    "sides",
    [
        OttlaQuorum,
        pytest.param(
            ThreeOfKafka,
            marks=pytest.mark.nightly(
                "tests/conformance/mirror/test_mirror_users.py::test_a_client_of_kafka_logs_in_at_ottla",
                "tests/conformance/mirror/test_mirror_users_moves.py::test_the_leading_controller_dies_and_the_mirror_too",
            ),
        ),
    ],
    indirect=True,
)
def test_the_leading_controller_dies_and_the_mirror_too(sides: Sides) -> None:
    upserted(sides.bootstrap, "first")
    with sides.follower() as follower:
        assert may_soon_log_in(sides, "first")
        for password in ("second", "third"):
            leader = sides.leader()
            sides.kill(leader)
            upserted(sides.bootstrap, password)
            assert may_soon_log_in(sides, password)
            assert sides.leader() != leader
            sides.restart(leader)
        assert follower.poll() is None, sides.said()

    before = "third"
    for kill_at, password in (("apply", "fourth"), ("note", "fifth")):
        upserted(sides.bootstrap, password)
        with sides.follower(kill_at) as follower:
            assert follower.wait(60) == -signal.SIGKILL, sides.said()
        assert may_log_in(sides.destination, password if kill_at == "note" else before)
        mirror = Mirror(route(sides.bootstrap, sides.controllers, sides.destination.bootstrap))
        mirror.control.ensure()
        mirror.control.load()
        mirror.sync_rest([])
        assert may_log_in(sides.destination, password) and not may_log_in(sides.destination, before)
        assert mirror.rest([]) == [], "the next one has made it good"
        before = password
