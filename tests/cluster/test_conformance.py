"""The smallest real clusters, Ottla's own and mixed with Kafka's, pass what takes seconds of the conformance suite:
Ottla's own in `make test`, the mixed ones in `make nightly`. All of it: `python -m tests.cluster conformance`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.cluster import suite

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

FILES = {
    "pair": (
        *("test_kcat", "test_confluent", "test_groups_wire"),
        *("test_cli_cluster", "test_differential", "test_differential_admin", "test_log_apis_like_kafka"),
    ),
    "under-kafka": ("test_kcat", "test_confluent", "test_differential", "test_differential_admin"),
    "over-kafka": ("test_kcat", "test_groups_walk", "test_differential", "test_differential_admin"),
}
"""The pair's only file of groups asks the controller for the topic of offsets: a coordinator does the rest alone.
Where the broker is Kafka's, other files fail by their own account, or by luck: it may answer before it has heard of
what its controller changed."""
CHEAP = (
    "-m", "not matrix and not slow and not nightly", "-k", "not test_share_offsets_of_a_partition_that_is_not_there",
)  # fmt: skip
"""Without what takes half a minute beside any Kafka, and what only `make nightly` runs on one node."""
AT_LEAST = {"pair": 250, "under-kafka": 200, "over-kafka": 190}
"""Tests that passed."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    with suite.oracle() as address:
        yield address


MIXED = pytest.mark.nightly(
    "tests/cluster/test_conformance.py::test_conformance", "tests/conformance/differential/test_differential.py",
    "tests/cluster/kafka/test_controller_like_kafka.py", "tests/cluster/kafka/test_over_kafka.py",
    "tests/cluster/kafka/test_partitions_like_kafka.py", "tests/cluster/kafka/test_replication_with_kafka.py",
)  # fmt: skip
"""What differs in a mixed cluster is what controller and brokers say to each other; the last four compare that."""


@pytest.mark.parametrize(
    "cluster", [each if each == "pair" else pytest.param(each, marks=MIXED) for each in suite.OTTLA]
)
def test_conformance(cluster: str, kafka: str) -> None:
    results = suite.run(cluster, kafka, [*suite.paths(FILES[cluster]), *CHEAP])
    assert results.wrong == [], results
    assert results.passed() >= AT_LEAST[cluster]
