"""A share of the crash test that fits into `make test`; run many rounds by hand: `python -m tests.crash.run`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.crash.run import CrashTest

ROUNDS = 6


def test_a_killed_node_keeps_its_word(tmp_path: Path) -> None:
    test = CrashTest(tmp_path / "data", seed=1)
    asyncio.run(test.run(ROUNDS, check_every=4))
    assert test.kills >= ROUNDS
    assert all(producer.acknowledged for producer in test.producers)
