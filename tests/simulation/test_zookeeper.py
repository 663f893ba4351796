"""Ottla's client of ZooKeeper with a model ensemble, from seeds. More by hand: `ZOOKEEPER_SEEDS=1-1000`."""

from __future__ import annotations

import os

import pytest

from ottla.simulation import scenario
from ottla.simulation.zookeeper.run import KINDS
from tests.simulation import mutations
from tests.simulation.mutations import MUTATIONS

FIRST, _, LAST = os.environ.get("ZOOKEEPER_SEEDS", "1-2").partition("-")
PLANTED = [each for each in MUTATIONS if each.kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_keep_their_promises(kind: str) -> None:
    for seed in range(int(FIRST), int(LAST or FIRST) + 1):
        outcome = scenario.run(seed, kind)
        assert outcome.failures == [], f"seed {seed}"


def test_a_seed_is_the_same_run_every_time() -> None:
    first, second = scenario.run(3, "zookeeper"), scenario.run(3, "zookeeper")
    assert (first.digest, first.steps, first.counts) == (second.digest, second.steps, second.counts)


@pytest.mark.parametrize("name", ["lost-requests-are-sent-again", "watches-are-not-set-again"])
def test_a_planted_bug_is_found(name: str) -> None:
    assert len(PLANTED) >= 16
    mutation = next(each for each in PLANTED if each.name == name)
    seed, what = mutations.find(mutation)
    assert 0 <= seed <= mutation.seeds, what
