"""Share-partitions whose records wait, at random: every delivery is checked (`share_queue.py`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.replication.share.config import ShareConfig
from tests.property.share_queue import LIMIT, LOCK_MS, Load, World

EVERYTHING = Load(600, keys=30, failovers=0.008, delay_ms_max=20_000)
PLAIN = ShareConfig(LOCK_MS, LIMIT, 200, waiting_max=400)


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(EVERYTHING, id="everything"),
        pytest.param(replace(EVERYTHING, config=replace(PLAIN, is_ordered_by_key=True)), id="order"),
        pytest.param(replace(EVERYTHING, delayed=0.5, config=replace(PLAIN, delivery_time_header=b"at")), id="times"),
        pytest.param(
            replace(EVERYTHING, delayed=0, gaps=0, config=replace(PLAIN, retry_backoff_ms=60)), id="back-offs"
        ),
    ],
)
def test_a_queue_keeps_its_promises(load: Load) -> None:
    dead = 0
    for seed in range(1, 3):
        world = World(seed, load)
        world.run()
        assert world.failovers and world.deliveries > len(world.marks)
        dead += len(world.dead())
    assert dead, "records that always fail are in one of the runs"
