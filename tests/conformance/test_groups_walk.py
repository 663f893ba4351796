"""Random walks of a group's members, done in step on Ottla and on Apache Kafka: see group_walk.py.

OTTLA_WALKS=FIRST:COUNT chooses other seeds.
"""

from __future__ import annotations

import contextlib
import os
import time

import pytest

from tests.conformance.group_walk import Diverged, Walk

STEPS = 60
FIRST, COUNT = map(int, os.environ.get("OTTLA_WALKS", "0:10").split(":"))
SLOW = 60
"""Walks of the slow matrix, beside those of every run."""


def walk(brokers: tuple[str, str], seed: int) -> None:
    with contextlib.suppress(Diverged):
        Walk(brokers, seed, f"{os.getpid()}-{time.time_ns() % 10**9}").run(STEPS)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_walk(bootstrap: str, oracle: str, seed: int) -> None:
    walk((bootstrap, oracle), seed)


@pytest.mark.matrix
def test_more_walks(bootstrap: str, oracle: str) -> None:
    for seed in range(1_000, 1_000 + SLOW):
        walk((bootstrap, oracle), seed)
