"""Random walks of a group's members, done in step on Ottla and on Apache Kafka: see group_walk.py.

OTTLA_WALKS=FIRST:COUNT chooses other seeds.
"""

from __future__ import annotations

import contextlib
import os
import time

import pytest

from tests.conformance.walks.group_walk import Diverged, Walk

STEPS = 60
FIRST, COUNT = map(int, os.environ.get("OTTLA_WALKS", "0:10").split(":"))
SLOW = 60
"""Walks of the slow matrix, beside those of every run."""


WENT: list[tuple[int, set[str]]] = []
"""Steps of each walk, and which requests they were: one may end early where the brokers may differ."""


def walk(brokers: tuple[str, str], seed: int) -> None:
    taken = Walk(brokers, seed, f"{os.getpid()}-{time.time_ns() % 10**9}")
    with contextlib.suppress(Diverged):
        taken.run(STEPS)
    WENT.append((len(taken.log), {each.split()[0] for each in taken.log}))


def check_walks(count: int) -> None:
    """They went far enough, and did all that there is to do."""
    assert len(WENT) == count
    assert sum(steps for steps, _ in WENT) >= count * STEPS * 0.6, [steps for steps, _ in WENT]
    assert {"JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "LEAVE_GROUP", "OFFSET_COMMIT"} <= set().union(
        *(requests for _, requests in WENT)
    )
    WENT.clear()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_walk(bootstrap: str, oracle: str, seed: int) -> None:
    walk((bootstrap, oracle), seed)


def test_the_walks_went_far(request: pytest.FixtureRequest) -> None:
    """If all were run."""
    if sum(item.function is test_a_walk for item in request.session.items) == COUNT:  # type: ignore[attr-defined]
        check_walks(COUNT)


@pytest.mark.matrix
def test_more_walks(bootstrap: str, oracle: str) -> None:
    WENT.clear()
    for seed in range(1_000, 1_000 + SLOW):
        walk((bootstrap, oracle), seed)
    check_walks(SLOW)
