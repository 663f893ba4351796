"""Share groups on three nodes: state that one node keeps for the leader on another outlives both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import Cluster
from tests.cluster.share_workers import Seen, ShareWriter, Worker, backlog
from tests.conformance.groups.share_consumers import GO, JAVA, Consumer, configure, program
from tests.conformance.groups.test_share_groups import from_the_start, lag, share_consume
from tests.conformance.libraries.test_java_tools import console_produce
from tests.conformance.line_program import Program
from tests.conformance.shell import Shell

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1", "offsets.topic.num.partitions": "1",
    "group.share.min.heartbeat.interval.ms": "500", "group.share.heartbeat.interval.ms": "500",
}  # fmt: skip
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


LIMIT_S = 180.0
AT_LEAST = 60
"""Records accepted between two kills, and again while a node is away."""
PARTITIONS = 2


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def is_whole(cluster: Cluster) -> bool:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).topics
    return all(len(part.isrs) == 3 for topic in topics.values() for part in topic.partitions.values())


def everywhere(cluster: Cluster, group: str) -> int:
    """Records that are not done with, as the first broker says that knows; not 0 where that is not known now."""
    for address in cluster.addresses.values():
        if (found := backlog(address, group, PARTITIONS)) >= 0:
            return found
    return -1


@pytest.fixture(
    params=[JAVA, pytest.param(GO, marks=pytest.mark.nightly("tests/conformance/clients/test_share_consumers.py"))]
)
def programs(request: pytest.FixtureRequest) -> Iterator[list[Program]]:
    """Two processes with clients of Kafka 4.3: a share consumer of 4.4.0 that has acknowledgements for a leader that is
    gone asks that node alone, whatever the metadata says, until it is back."""
    started = [program(request.param, "4.3") for _ in range(2)]
    yield started
    for each in started:
        each.close()


def test_every_record_is_delivered_and_none_after_it_was_acknowledged_while_nodes_die(programs: list[Program]) -> None:
    with Cluster(3, SETTINGS, topics={"work": PARTITIONS}) as cluster:
        configure(cluster.bootstrap, "g", auto_offset_reset="earliest", delivery_count_limit="10")
        seen = Seen()
        workers = [Worker(each, cluster.bootstrap, "g", "work", seen, seed) for seed, each in enumerate(programs)]
        writer = ShareWriter(cluster.bootstrap, "work", PARTITIONS)
        for thread in (writer, *workers):
            thread.start()

        def more_accepted() -> None:
            wanted = len(seen.accepted) + AT_LEAST
            until(lambda: len(seen.accepted) >= wanted, lambda: (len(seen.accepted), wanted, seen.failures))

        for topic in ("__share_group_state", "work", "__consumer_offsets"):
            more_accepted()
            until(lambda: is_whole(cluster), lambda: "a replica does not catch up")
            victim = cluster.leader(topic)
            cluster.kill(victim)
            more_accepted()
            cluster.restart(victim)
        writer.stop()
        until(lambda: everywhere(cluster, "g") == 0, lambda: (everywhere(cluster, "g"), seen.failures))
        for worker in workers:
            worker.stop()
            assert worker.crashed is None
        assert writer.written <= seen.delivered.keys()
        assert seen.late == []
        last = Consumer(programs[0], cluster.bootstrap, "g", "work")
        assert last.none_left()
        last.close()
