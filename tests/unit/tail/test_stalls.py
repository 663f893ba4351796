"""A log that is rotated every second, renamed and copied in turn, while the cluster takes nothing for seconds: whole
generations come and go between two looks of the agent, all of the same length. Seen in
tests/cluster/brokers/test_faults.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.tail import world as worlds

LINES, PAUSE_S, ROTATED_EVERY = 20, 0.1, 10
"""Lines at once, between which so many seconds pass, and after so many times a rotation."""
PLAYED_S = 40.0
FIRST = 1000
"""The number of the first line: all numbers have as many digits."""


class Paced(worlds.World):
    """Written to by the clock, whatever the agent does; nobody is killed."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, worlds.Plan(seed, worlds.copied_in_turn, "none", "name", True, False))
        self._due_s, self._turns, self._is_busy = self.clock.now_s, 0, False

    def before_call(self) -> None:
        self.clock.now_s += 1e-5
        self._write_what_is_due()

    def may_be_killed(self, chance: float) -> None:
        pass

    def stall(self, chance: float) -> None:
        """A commit, which takes a while, and some of them seconds."""
        if self._calm:
            return
        self.clock.now_s += self.rng.choice((0.01, 0.05, 0.1))
        if self.rng.random() < 0.05:
            self.clock.now_s += self.rng.uniform(1, 8)
        self._write_what_is_due()

    def _slept(self, seconds: float) -> None:
        self._write_what_is_due()

    def _write_what_is_due(self) -> None:
        if self._is_busy or self._calm:
            return
        self._is_busy, now_s = True, self.clock.now_s
        while self._due_s <= now_s:
            self.clock.now_s = self._due_s  # files have the time at which they were written
            self._due_s += PAUSE_S
            self._turns += 1
            self._write_lines()
            if self._turns % ROTATED_EVERY == 0:
                self.rotations += 1
                for _ in self.plan.rotation(self, self._logs[0]):
                    pass
        self._is_busy, self.clock.now_s = False, now_s

    def _write_lines(self) -> None:
        path = self._logs[0].path
        numbers = range(self.written, self.written + LINES)
        self.written += LINES
        self.generations.update(dict.fromkeys(numbers, self._now[path]))
        with path.open("ab") as file:
            file.write(b"".join(b"%d:xx;\n" % number for number in numbers))
        self._touch(path)

    def run(self) -> None:
        self._install()
        self.written = FIRST
        self.create(self._logs[0].path)
        self._calm = False
        self.play(PLAYED_S)
        self._calm = True
        self.play(worlds.QUIET_S)
        self.check()


@pytest.mark.parametrize("seed", range(1, 13))
def test_generations_that_came_and_went_in_a_stall(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in worlds.MODULES:
        for name in ("time", "os"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))  # `_install` replaces them
    world = Paced(tmp_path / "world", seed)
    world.run()
    assert world.rotations > PLAYED_S / (PAUSE_S * ROTATED_EVERY) / 2
