"""An idempotent librdkafka producer over two partitions hears of no hole where nothing is lost, and writes all once.

Whether the in-sync requirement changes between two batches of one connection is a matter of luck: 25 turns passed
without the rule of `storage/producers/refused_batches.py` too. `tests/unit/replication/test_refused.py` proves that
rule.
"""

from __future__ import annotations

from ottla.testing import Cluster
from tests.cluster import bumped_epochs

TURNS = 25
"""More by hand: `python -m tests.cluster bumps --turns 1000 --kills 100 --seed 7`."""


def test_batches_are_refused_and_leaders_are_killed() -> None:
    with Cluster(3) as cluster:
        played = bumped_epochs.play(cluster, turns=TURNS, kills=1, seed=1)
    assert not played.wrong
    assert not played.bumps
    assert played.refused > TURNS and played.acknowledged > 500
