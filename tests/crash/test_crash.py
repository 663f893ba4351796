"""Shares of the crash tests that fit into `make test`; by hand: `python -m tests.crash.run`, `... .compacted`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.crash.compacted import Soak
from tests.crash.run import CrashTest

ROUNDS = 6


def test_a_killed_node_keeps_its_word(tmp_path: Path) -> None:
    test = CrashTest(tmp_path / "data", seed=1)
    asyncio.run(test.run(ROUNDS, check_every=4))
    assert test.kills >= ROUNDS
    assert all(producer.acknowledged for producer in test.producers)


def test_a_killed_node_that_compacts_keeps_its_word(tmp_path: Path) -> None:
    soak = Soak(tmp_path / "data", seed=1, topics=3, settings={})
    soak.run(6, (1, 2), report=lambda _: None)
    assert soak.kills
    assert all(model.readings and model.compacted for model in soak.models)
