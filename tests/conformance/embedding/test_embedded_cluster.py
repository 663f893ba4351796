"""`ottla.testing.Cluster`: nodes that are killed, paused and cut off from each other, and what clients see of it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.testing import BrokerError, Cluster
from tests.conformance.embedding.test_embedding import receive, send, wait_until_gone
from tests.conformance.pair import Wire
from tests.unit.server.node import batch, produce_values

QUICK = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 200, "ottla.log.slow.request.ms": -1}
"""So that nobody waits for nine seconds until a silent broker is fenced."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, QUICK, topics={"t": 3}) as started:
        yield started


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, 60).topics[topic]
    return {number: each.leader for number, each in found.partitions.items()}


def wait_until_in_sync(cluster: Cluster, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for _ in range(3000):
        if all(len(each.isrs) == 3 for each in client.list_topics(topic, 60).topics[topic].partitions.values()):
            return
        client.poll(0.02)
    raise AssertionError("a node does not catch up")


def wait_until_led_by_others(cluster: Cluster, node: int, asked: int) -> None:
    """As node `asked` knows it: a client might ask the one that is cut off."""
    for _ in range(3000):
        try:
            found = [cluster.leader("t", number, seen_by=asked) for number in range(3)]
        except BrokerError:  # no leader for a moment
            found = [node]
        if node not in found:
            return
        time.sleep(0.02)
    raise AssertionError(f"node {node} leads on")


def test_three_nodes_with_three_copies(cluster: Cluster) -> None:
    assert cluster.nodes == [1, 2, 3]
    assert len(set(cluster.bootstrap.split(","))) == 3
    assert len({cluster.pid(node) for node in cluster.nodes}) == 3
    send(cluster.bootstrap, "t", b"a", b"b")
    assert receive(cluster.bootstrap, "t", 2) == [b"a", b"b"]
    assert sorted(leaders(cluster.bootstrap, "t").values()) == [1, 2, 3]
    assert {cluster.leader("t", number) for number in range(3)} == {1, 2, 3}
    cluster.create_topic("more", partitions=2, cleanup_policy="compact")
    assert len(leaders(cluster.bootstrap, "more")) == 2


def test_a_killed_leader(cluster: Cluster) -> None:
    cluster.kill(3)
    with pytest.raises(BrokerError, match=r"node 3 was killed; restart\(3\) starts it again"):
        cluster.pid(3)
    wait_until_led_by_others(cluster, 3, asked=1)
    send(cluster.bootstrap, "t", *(b"%d" % number for number in range(30)))
    cluster.restart(3)
    wait_until_in_sync(cluster, "t")


def test_a_paused_node_answers_later(cluster: Cluster) -> None:
    cluster.pause(2)
    with socket.create_connection(cluster.addresses[2].split(":"), 60) as connection:  # the system accepts
        connection.sendall(bytes.fromhex("0000000c 0012 0000 00000001 0002 6f74"))
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        cluster.resume(2)
        connection.settimeout(120)
        assert connection.recv(1)
    wait_until_in_sync(cluster, "t")


def test_a_node_that_is_cut_off(cluster: Cluster) -> None:
    """Others take over; who was cut off can be reached by clients and acknowledges nothing that would be lost."""
    number, node = next((n, cluster.leader("t", n)) for n in range(3) if cluster.leader("t", n) != 1)
    cluster.partition(node)
    wait_until_led_by_others(cluster, node, asked=1)
    assert cluster.leader("t", number, seen_by=node) == node, "it cannot know that another leads"
    # A client with a choice might hear from others who leads now.
    answer = Wire(cluster.addresses[node]).ask(ApiKey.PRODUCE, 9, produce_values("t", batch(), partition=number))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.request_timed_out
    send(cluster.addresses[1], "t", *(b"x%d" % each for each in range(30)))
    cluster.heal()
    wait_until_in_sync(cluster, "t")


def test_one_direction(cluster: Cluster) -> None:
    """The controller hears nothing of node 2, which hears all of the controller's."""
    cluster.cut(2, 1)
    wait_until_led_by_others(cluster, 2, asked=1)
    cluster.heal()
    wait_until_in_sync(cluster, "t")


def test_who_asks_for_what_is_not_there(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match="there is no node 4: the cluster has nodes 1 to 3"):
        cluster.kill(4)
    with pytest.raises(BrokerError, match="no partition 9 of topic t"):
        cluster.leader("t", 9)
    with pytest.raises(ValueError, match="one group only"):
        cluster.partition([1, 2], 2)
    with pytest.raises(BrokerError, match="not started"):
        Cluster().pid(1)
    with pytest.raises(ValueError, match="from 1 to 100 nodes"):
        Cluster(0)


def test_nothing_is_left() -> None:
    with Cluster(2, QUICK) as cluster:
        pids, places = ([each(node) for node in cluster.nodes] for each in (cluster.pid, cluster.directory))
        cluster.pause(2)
    for pid in pids:
        wait_until_gone(pid)
    assert not any(place.exists() for place in places)


def test_a_node_that_died_by_itself_is_reported() -> None:
    died = pytest.raises(BrokerError, match=r"node 2 died while it was in use \(killed by SIGKILL\)")
    with died, Cluster(2, QUICK) as cluster:
        pid = cluster.pid(2)
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)


def test_settings_and_data_that_stay(tmp_path: object) -> None:
    with Cluster(2, {**QUICK, "num.partitions": 5}, keep=str(tmp_path)) as cluster:
        cluster.create_topic("kept")
        assert len(leaders(cluster.bootstrap, "kept")) == 5
        send(cluster.bootstrap, "kept", b"a")
    with Cluster(2, QUICK, keep=str(tmp_path)) as cluster:
        assert receive(cluster.bootstrap, "kept", 1) == [b"a"]
