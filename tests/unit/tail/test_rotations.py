"""Rotations of every known kind, links, pauses and kills: nothing that can be read is missing, or comes twice.

`python -m tests.unit.tail.test_rotations 1-5000` plays many worlds, `python -m tests.unit.tail.test_rotations 17`
one, and prints what happened in it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.unit.tail.world import LINKS, PATTERNS, ROTATIONS, Plan, play

SEEDS = range(1, 121)
PARTS = 6
QUICK = 3
"""Parts that `make test` plays: they have every kind."""


def seeds_of(part: int) -> range:
    size = len(SEEDS) // PARTS
    return SEEDS[part * size : (part + 1) * size]


LATER = pytest.mark.nightly("tests/unit/tail/test_rotations.py::test_nothing_is_lost_or_sent_twice")


@pytest.mark.parametrize("part", [pytest.param(part, marks=LATER) if part >= QUICK else part for part in range(PARTS)])
def test_nothing_is_lost_or_sent_twice(tmp_path: Path, part: int) -> None:
    kills = rotations = 0
    for seed in seeds_of(part):
        world = play(tmp_path / str(seed), seed)
        kills, rotations = kills + world.kills, rotations + world.rotations
        shutil.rmtree(tmp_path / str(seed))
    assert kills > len(SEEDS) / PARTS, "agents are not killed"
    assert rotations > 4 * len(SEEDS) / PARTS, "files are not rotated"


def test_every_kind_is_played() -> None:
    plans = [Plan.of(seed) for part in range(QUICK) for seed in seeds_of(part)]
    assert {plan.rotation for plan in plans} == set(ROTATIONS)
    assert {(plan.link, plan.pattern) for plan in plans} == {(link, pattern) for link in LINKS for pattern in PATTERNS}


def main(argument: str) -> int:
    first, _, last = argument.partition("-")
    wrong = 0
    for seed in range(int(first), int(last or first) + 1):
        with tempfile.TemporaryDirectory() as root:
            try:
                play(Path(root) / "world", seed, (lambda text: None) if last else print)
            except AssertionError as error:
                wrong += 1
                print(error)
    print(f"{wrong} worlds went wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
