"""A Kafka of three nodes becomes Ottla in most of its nodes, and one goes back, under load.

All of it: `python -m tests.cluster rolling`.
"""

from __future__ import annotations

import shutil

import pytest

from tests.cluster import rolling

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")


@pytest.mark.nightly(
    "tests/cluster/kafka/test_together.py",
    "tests/cluster/kafka/test_mixed_quorum.py",
    "tests/conformance/drop_in/test_drop_in.py",
    "tests/conformance/operations/test_cluster_growth.py::test_a_directory_of_one_kafka_grows_into_three_voters_under_load",
)
def test_nodes_move_under_load_and_nothing_is_lost() -> None:
    """Leaders, coordinators and the controller of both kinds; producers of librdkafka and Java, and two groups."""
    cycle, kinds = rolling.play([(1, "ottla"), (2, "ottla"), (1, "kafka")])
    assert kinds == {1: "kafka", 2: "ottla", 3: "kafka"}
    assert cycle.did == ["1 is ottla", "2 is ottla", "1 is kafka"]
    assert cycle.sound, cycle
    assert cycle.report["acknowledged"] > 500 and cycle.of_java > 500, cycle
