"""What a decision costs goes by the replicas of the broker that it is about, not by the size of the cluster."""

from __future__ import annotations

from pathlib import Path

from bench.workloads import controller_failovers
from bench.workloads.controller import cluster, measured
from bench.workloads.controller_failovers import OttlaControllers, snapshot

GROWTH = 10
ALLOWED = 2.0
"""As many partitions as there are topics more are looked up one by one; ten times would be a scan."""


def test_decisions_about_one_broker_do_not_grow_with_the_cluster() -> None:
    small, large = measured(500, 5), measured(500 * GROWTH, 5 * GROWTH)
    for name in ("a broker is fenced", "and comes back", "a leader changes its ISR"):
        assert small[name]["calls"] > 50
        assert large[name]["calls"] < ALLOWED * small[name]["calls"], name
        assert large[name]["most calls between yields"] < 10_000, "a few milliseconds at most"
    assert 250 < large["a broker is fenced"]["records"] < 350
    index = "a new controller's first (index)"
    assert large[index]["calls"] < 2 * GROWTH * small[index]["calls"]
    assert large[index]["most calls between yields"] < 10_000


def test_the_active_one_of_three_is_killed(tmp_path: Path) -> None:
    side = OttlaControllers(tmp_path, *snapshot(cluster(1_000, 10)))
    try:
        found = controller_failovers.measured(side, 1)
    finally:
        side.stop()
    assert found["rounds"] == 1 and found["start s"] > 0 and found["memory of the active MB"] > 10
