"""Transactions on three nodes: whoever coordinates or leads is killed, each record is copied once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.testing import Cluster
from tests.conformance.test_exactly_once import COUNT, copied, copy, fill, java_copier, python_copier

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    topics = {"in": 1, "out": 1}
    with Cluster(3, SETTINGS, topics=topics) as started:
        yield started


def killed(cluster: Cluster, topic: str) -> Callable[[], None]:
    """Kill the leader of a topic, and start it again when somebody else leads."""

    def strike() -> None:
        leader = cluster.leader(topic)
        cluster.kill(leader)
        cluster.restart(leader)

    return strike


def test_librdkafka_while_coordinators_and_leaders_die(cluster: Cluster) -> None:
    fill(cluster.bootstrap)
    strikes = [killed(cluster, topic) for topic in ("__transaction_state", "out", "__consumer_offsets", "in")]
    copy(python_copier("confluent_copier.py")(cluster.bootstrap), *strikes)
    assert copied(cluster.bootstrap) == list(range(COUNT))


def test_java_while_coordinators_and_leaders_die(cluster: Cluster) -> None:
    fill(cluster.bootstrap)
    strikes = [killed(cluster, topic) for topic in ("__transaction_state", "out")]
    copy(java_copier(cluster.bootstrap), *strikes)
    assert copied(cluster.bootstrap) == list(range(COUNT))
