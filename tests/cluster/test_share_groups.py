"""Share groups on three nodes: state that one node keeps for the leader on another outlives both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Cluster
from tests.conformance.shell import Shell
from tests.conformance.test_java_tools import console_produce
from tests.conformance.test_share_groups import from_the_start, lag, share_consume

SETTINGS = {"share.coordinator.state.topic.num.partitions": "1", "offsets.topic.num.partitions": "1"}
LINES = [f"line {number}" for number in range(30)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS, topics={"jobs": 1}) as started:
        yield started


def test_what_was_accepted_is_not_delivered_again_when_coordinator_and_leader_die(
    cluster: Cluster, shell: Shell
) -> None:
    from_the_start(shell, cluster.bootstrap, "g")
    seen: list[str] = []
    for number, topic in enumerate(("__share_group_state", "jobs", "__consumer_offsets")):
        console_produce(shell, cluster.bootstrap, "jobs", LINES[10 * number : 10 * (number + 1)])
        seen += share_consume(shell, cluster.bootstrap, "g", "jobs", 10)
        assert lag(shell, cluster.bootstrap, "g", "jobs") == "0"
        leader = cluster.leader(topic)
        cluster.kill(leader)
        cluster.restart(leader)
    assert seen == LINES
