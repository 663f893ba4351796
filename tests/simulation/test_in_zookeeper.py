"""Clusters that live in ZooKeeper, from seeds: nodes, the ensemble and the way to it fail, and nothing acknowledged is
lost: `test_nodes.py` plays seeds of it. More by hand: `ottla sim --kind "in zookeeper"`."""

from __future__ import annotations

from ottla.simulation import scenario
from ottla.simulation.runs.in_zookeeper import IN_ZOOKEEPER
from tests.simulation.mutations import MUTATIONS


def test_a_seed_is_the_same_run_every_time() -> None:
    first, second = scenario.run(4, IN_ZOOKEEPER), scenario.run(4, IN_ZOOKEEPER)
    assert (first.digest, first.steps, first.counts) == (second.digest, second.steps, second.counts)


def test_bugs_are_planted_in_it() -> None:
    assert sum(each.kind == IN_ZOOKEEPER for each in MUTATIONS) >= 12
