"""A cluster that is killed, cut, filled and paused under load, and whether all that was acknowledged is there, once.

Under load: librdkafka's and Java's producers with two groups, an idempotent one over two partitions, a log that is
rotated. More by hand: `python -m tests.cluster faults --rounds 200 --nodes 3 --seed 1`.
"""

from __future__ import annotations

import shutil

import pytest

from tests.cluster import faults

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here for Kafka's producer")


def test_nothing_is_lost_and_nothing_is_there_twice() -> None:
    with faults.started("ottla", 3) as cluster:
        done = [faults.full_disk, faults.isolate, faults.kill_leader]
        cycle = faults.play(cluster, done, 3, others=faults.bumps_and_logs)
    assert cycle.sound, str(cycle)
    assert cycle.did[0].startswith(("full disk of", "no writes for"))
    assert cycle.report["acknowledged"] > 500 and cycle.of_java > 500, cycle
