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
from tests.cluster.admin import until
from tests.cluster.processes import Voter, ottla_quorum, start_together
from tests.cluster.quorum.test_quorum import QUICK, end, leader_of
from tests.conformance.mirror.logins import may_log_in, secured_node, upserted
from tests.conformance.mirror.users_follower import route


class Sides:
    """Three nodes that vote together, and an Ottla that takes their users."""

    def __init__(self, directory: Path) -> None:
        self.source: list[Voter] = ottla_quorum(directory, settings=QUICK)
        self.destination = secured_node(directory / "destination")
        self.directory = directory
        self._run = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.source)

    @property
    def controllers(self) -> str:
        return ",".join(node.controller for node in self.source)

    def leader(self) -> int:
        """Waits until all that run agree about it."""
        running = [node.bootstrap for node in self.source if node.process is not None]
        return until(lambda: leader_of(running), lambda found: found > 0)

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
def sides(tmp_path: Path) -> Iterator[Sides]:
    sides = Sides(tmp_path)
    try:
        start_together(sides.source)
        with sides.destination:
            yield sides
    finally:
        end(sides.source)


def may_soon_log_in(sides: Sides, password: str) -> bool:
    try:
        return until(lambda: may_log_in(sides.destination, password), bool)
    except AssertionError:
        raise AssertionError(sides.said()[-3000:]) from None


def test_the_leading_controller_dies_and_the_mirror_too(sides: Sides) -> None:
    upserted(sides.bootstrap, "first")
    with sides.follower() as follower:
        assert may_soon_log_in(sides, "first")
        for password in ("second", "third"):
            leader = sides.leader()
            sides.source[leader - 1].kill()
            upserted(sides.bootstrap, password)
            assert may_soon_log_in(sides, password)
            assert sides.leader() != leader
            sides.source[leader - 1].begin()
            sides.source[leader - 1].wait_ready()
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
