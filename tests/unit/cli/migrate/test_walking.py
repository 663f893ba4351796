"""The walk over a made-up cluster: killed at every step it goes on, and never are two nodes away."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from ottla.cli.exits import CommandFailed
from ottla.cli.migrate import journal
from ottla.cli.migrate.health import Look, trouble
from ottla.cli.migrate.journal import Journal
from ottla.cli.migrate.survey import KAFKA, OTTLA, Node, Partition, Quorum, Voter
from ottla.cli.migrate.walking import Walk

PATIENCE_S = 60.0
COMBINED = tuple(Node(each, True, True, f"h{each}:1") for each in (1, 2, 3))
SEPARATE = (
    *(Node(each, True, False, f"h{each}:1", rack) for each, rack in ((1, "b"), (2, "a"), (3, "b"))),
    *(Node(each, False, True, f"h{each}:1") for each in (11, 12, 13)),
)


class Killed(BaseException):
    """The walk's process ends here."""


class Made:
    """A cluster whose clock moves with each look. A node needs a second to stop, two to answer, a third to register and
    a fourth until its replicas are in sync and its voter has fetched."""

    def __init__(self, nodes: tuple[Node, ...], leader: int) -> None:
        self.nodes = {each.id: each for each in nodes}
        self.leader = leader
        self.kinds = dict.fromkeys(self.nodes, KAFKA)
        self.down_at: dict[int, float] = {}
        """When a node that was told to stop is down."""
        self.up_at: dict[int, float] = dict.fromkeys(self.nodes, -10.0)
        """When a node was started; without an entry it is down."""
        self.clock = 0.0
        self.log: list[str] = []
        self.calls = 0
        self.dies_at = -1
        self.starts = OTTLA
        self.starts_wrong = False
        self.silent: set[int] = set()
        self.last_seen_ms: dict[int, float] = {}
        self.broken: str | None = None

    def _call(self) -> None:
        self.calls += 1
        self.clock += 0.05
        for node, at in [*self.down_at.items()]:
            if at <= self.clock:
                del self.down_at[node]
                self.up_at.pop(node, None)
        if self.calls == self.dies_at:
            raise Killed

    def _age(self, node: int) -> float:
        return self.clock - self.up_at[node] if node in self.up_at else -1.0

    def _away(self) -> set[int]:
        return {each for each in self.nodes if self._age(each) < 3 or each in self.down_at}

    def look(self, node: Node | None = None) -> Look:
        self._call()
        brokers = [each for each in self.nodes.values() if each.is_broker]
        if node is not None and self._age(node.id) < 2:
            raise CommandFailed("nobody answers")
        running = frozenset(each.id for each in brokers if self._age(each.id) >= 2)
        ids = tuple(each.id for each in brokers)
        in_sync = tuple(each for each in ids if self._age(each) >= 3)
        now_ms = round(self.clock * 1000)
        voters = [each for each in self.nodes.values() if each.is_voter]
        if self._age(self.leader) < 3:
            self.leader = next(each.id for each in voters if self._age(each.id) >= 3)
        seen = {
            each.id: now_ms if self._age(each.id) >= 3 else round(min(now_ms, self._left_ms(each.id)))
            for each in voters
        }
        state = Quorum(self.leader, 500, tuple(Voter(each, 500, at, at) for each, at in seen.items()))
        moving = (("t", 0),) if self.broken == "moving" else ()
        return Look(running, (Partition("t", 0, ids, in_sync, in_sync[0]),), state, moving)

    def _left_ms(self, node: int) -> float:
        """The last fetch of a voter that is away: a moment ago, as the leader remembers it."""
        return self.last_seen_ms.setdefault(node, self.clock * 1000)

    def kind(self, node: Node) -> str | None:
        self._call()
        return self.kinds[node.id] if self._age(node.id) >= 1 and node.id not in self.silent else None

    def stop(self, node: Node) -> None:
        self._call()
        others = self._away() - {node.id}
        assert not others, f"{node.id} is stopped while {others} are away"
        self.log.append(f"stop {node.id}")
        self.last_seen_ms[node.id] = self.clock * 1000
        if node.id in self.up_at:
            self.down_at.setdefault(node.id, self.clock + 1)
        if node.id in self.silent:  # its command waits
            self.clock += 1.1
            self.up_at.pop(node.id, None)
            self.down_at.pop(node.id, None)
        self._call()

    def start(self, node: Node) -> None:
        self._call()
        if node.id not in self.up_at:
            assert node.id not in self.down_at
            self.kinds[node.id] = KAFKA if self.starts_wrong else self.starts
            self.up_at[node.id] = self.clock
        self.log.append(f"start {node.id}")
        self._call()

    def elect(self) -> int:
        self._call()
        return 1

    def now_s(self) -> float:
        return self.clock

    def pause(self, seconds: float) -> None:
        self.clock += seconds

    def show(self, text: str) -> None:
        pass

    def tell(self, text: str) -> None:
        self.log.append(text)


def walked(made: Made, path: Path, target: str = OTTLA) -> Journal:
    """A run of the command."""
    made.starts = target
    progress = journal.load(path, "c", target)
    progress.turn(target)
    Walk(made, progress, tuple(made.nodes.values()), frozenset(made.silent), PATIENCE_S).run()
    return progress


def stopped(made: Made) -> list[int]:
    return [int(each.split()[1]) for each in made.log if each.startswith("stop ")]


@pytest.mark.parametrize(
    ("nodes", "leader", "order"),
    [(COMBINED, 2, [1, 3, 2]), (COMBINED, 1, [2, 3, 1]), (SEPARATE, 11, [2, 1, 3, 12, 13, 11])],
)
def test_brokers_first_by_rack_and_the_active_controller_last(
    tmp_path: Path, nodes: tuple[Node, ...], leader: int, order: list[int]
) -> None:
    made = Made(nodes, leader)
    progress = walked(made, tmp_path / "j")
    assert stopped(made) == order
    assert set(made.kinds.values()) == {OTTLA}
    assert progress.node is None and {*progress.done} == {str(each) for each in made.nodes}
    assert walked(made, tmp_path / "j") and stopped(made) == order  # there is nothing left to do
    walked(made, tmp_path / "j", KAFKA)
    assert set(made.kinds.values()) == {KAFKA}


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals without fsync: no power is cut in these hundreds of walks."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("nodes", [COMBINED, SEPARATE], ids=["combined", "separate"])
def test_killed_anywhere_the_same_command_goes_on_or_goes_back(
    tmp_path: Path, nodes: tuple[Node, ...], back: bool
) -> None:
    """A walk is killed at each of its calls in turn; `Made.stop` fails where another node is away."""
    whole = Made(nodes, nodes[0].id)
    walked(whole, tmp_path / "whole")
    assert whole.calls > 60
    for number in range(1, whole.calls + 1):
        made = Made(nodes, nodes[0].id)
        made.dies_at = number
        path = tmp_path / f"j{number}"
        try:
            walked(made, path)
        except Killed:
            made.clock += number % 3  # the same command, at once or later
        try:
            walked(made, path, KAFKA if back else OTTLA)
        except CommandFailed as failed:
            pytest.fail(
                f"killed at {number}: {failed}; {made.log} {made.kinds} {made.clock} {made.up_at} {made.down_at}"
            )
        assert set(made.kinds.values()) == {KAFKA if back else OTTLA}, number
        assert not made._away()
        assert journal.load(path, "c", OTTLA).node is None


def test_controllers_that_cannot_be_asked_are_waited_for_by_what_the_quorum_says(tmp_path: Path) -> None:
    """The leader remembers the end of a voter that is away: only its fetches say that it is back."""
    for dies_at in (-1, *range(40, 140, 3)):
        made = Made(SEPARATE, 12)
        made.silent = {11, 12, 13}
        made.dies_at = dies_at
        path = tmp_path / f"j{dies_at}"
        try:
            walked(made, path)
        except Killed:
            walked(made, path)
        assert set(made.kinds.values()) == {OTTLA}
        if dies_at < 0:
            assert stopped(made) == [2, 1, 3, 11, 13, 12]


def test_a_cluster_that_is_not_whole_is_left_alone(tmp_path: Path) -> None:
    made = Made(COMBINED, 1)
    made.broken = "moving"
    with pytest.raises(CommandFailed, match="before node 2: 1 partition being moved, the first is t-0, after"):
        walked(made, tmp_path / "j")
    assert stopped(made) == []


def test_a_start_command_that_starts_the_other_software_is_said(tmp_path: Path) -> None:
    made = Made(COMBINED, 1)
    made.starts_wrong = True
    with pytest.raises(CommandFailed, match="node 2 answers, and is kafka: the --start command does not start ottla"):
        walked(made, tmp_path / "j")
    assert made.clock < PATIENCE_S and stopped(made) == [2]
    made.starts_wrong = False
    walked(made, tmp_path / "j")
    assert set(made.kinds.values()) == {OTTLA}


def test_a_node_that_does_not_stop_is_not_started(tmp_path: Path) -> None:
    made = Made(COMBINED, 1)
    made.down_at = {2: 1e9}
    made._away = lambda: set()  # type: ignore[method-assign]
    with pytest.raises(CommandFailed, match=r"node 2 still answers .* nothing was started there"):
        walked(made, tmp_path / "j")
    assert "start 2" not in made.log


LOOK = Made(COMBINED, 1).look()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"running": frozenset({1, 3})}, "node 2 is not running"),
        ({"partitions": (Partition("t", 4, (1, 2), (1,), 1),)}, "1 partition with missing replicas, the first is t-4"),
        ({"partitions": (Partition("t", 4, (1,), (1,), -1),)}, "1 partition without a leader, the first is t-4"),
        ({"quorum": dataclasses.replace(LOOK.quorum, leader=-1)}, "the metadata quorum has no leader"),
        (
            {"quorum": Quorum(1, 5000, (Voter(1, 5000, 9, 9), Voter(2, 3000, 9, 9)))},
            "controller 2 is away, or behind the metadata log",
        ),
        (
            {"quorum": Quorum(1, 5, (Voter(1, 5, 9000, 9000), Voter(3, 5, 5000, 5000)))},
            "controller 3 is away, or behind the metadata log",
        ),
    ],
)
def test_why_no_node_may_be_stopped(change: dict[str, object], why: str) -> None:
    found = dataclasses.replace(LOOK, **change)  # type: ignore[arg-type]
    assert trouble(found, (1, 2, 3)) == why
    if why.startswith(("node 2", "controller 2")):
        assert trouble(found, (1, 2, 3), away=2) == ""


@pytest.mark.parametrize("text", ["", "{}", "[]", "\x00", '{"version": 2}', '{"version": 1, "target": "x"}'])
def test_a_file_that_is_no_progress_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "j"
    path.write_text(text)
    with pytest.raises(CommandFailed, match="progress of a walk"):
        journal.load(path, "c", OTTLA)


def test_the_progress_of_another_cluster_and_a_second_walk_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    Journal(path, "c", OTTLA, 2, journal.STARTING, done={"1": 2.0}).write()
    assert journal.load(path, "c", KAFKA) == Journal(path, "c", OTTLA, 2, "starting", done={"1": 2.0})
    with pytest.raises(CommandFailed, match="is of cluster c, and this is d"):
        journal.load(path, "d", OTTLA)
    with journal.held(path), pytest.raises(CommandFailed, match="another walk is under way"), journal.held(path):
        pass
