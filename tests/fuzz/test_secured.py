"""A second of the fuzzer of handshakes and logins; `python -m tests.fuzz --secured` goes on for as long as you like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import uvloop

from tests.fuzz.secured import ATTACKS, attack, shown

ROUNDS = 40


@pytest.mark.parametrize("seed", [os.environ.get("OTTLA_SEED", "1")])
def test_strangers_harm_nobody_and_learn_nothing(tmp_path: Path, seed: str) -> None:
    done = uvloop.run(attack(tmp_path, seed, rounds=ROUNDS))
    print(f"seed {seed}: {shown(done)}")
    assert done.problems == []
    assert done.attacks.total() == ROUNDS * len(ATTACKS)
    assert done.refused["handshakes"] > ROUNDS and done.refused["logins"] > ROUNDS
    assert done.refused["other logins"] > ROUNDS // 10
