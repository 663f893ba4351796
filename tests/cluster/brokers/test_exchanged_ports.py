"""Two clusters of two nodes whose second nodes exchange their ports (KIP-1242): clients stay with their own cluster.

A node of the other cluster listens where the clients know the leader of a partition to be, for seconds before that one
is back at another port. `ottla.client` and Kafka's own producer of 4.4.0 are refused there, bootstrap again, and write
what they have to their own cluster once its node is back.

Kafka's consumer of 4.4.0 is polled before and after. Polled while the other node is there, it is refused once and then
fetches from the leader that its position still names, before it has metadata again: that connection says neither
cluster nor node (clusterId=null, nodeId=-1), the other node has to answer, and the consumer goes to and fro between the
clusters from then on. No server can tell.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.config import ClientConfig
from ottla.client.connection import OtherNode
from ottla.client.producer import Producer
from ottla.model import TopicPartition
from ottla.testing.process import reserve
from peers.kafka import cache
from tests.cluster.admin import until
from tests.cluster.processes import QUICK, ottla_quorum, start_together
from tests.conformance.line_program import Program, java_program
from tests.node import NodeProcess

TOPIC = "both"
ON_FIRST, ON_SECOND = 0, 1
"""Partitions, by the node that has them."""
_REFUSED = 'kafka_network_requestmetrics_errors_total{request="ApiVersions",error="REBOOTSTRAP_REQUIRED"}'


class Pair(NamedTuple):
    """A cluster of two nodes, both of which are broker and controller."""

    first: NodeProcess
    second: NodeProcess
    http: int
    """The second node's HTTP port."""


def pair(directory: Path, cluster_id: str) -> Pair:
    directory.mkdir()
    with reserve(0) as held:
        http = held.getsockname()[1]
    first, second = ottla_quorum(directory, settings={**QUICK, "ottla.cluster.id": cluster_id}, count=2)
    second.settings["ottla.http.listener"] = f"127.0.0.1:{http}"
    return Pair(first, second, http)


def move(node: NodeProcess, port: int) -> None:
    """From the next start on the node listens to clients at another port."""
    own = f"127.0.0.1:{port}"
    node.settings["listeners"] = node.settings["listeners"].replace(
        f"PLAINTEXT://{node.bootstrap}", f"PLAINTEXT://{own}"
    )
    node.port, node.bootstrap = port, own


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Pair, Pair]]:
    a, b = pair(tmp_path / "a", "the-first-cluster-000A"), pair(tmp_path / "b", "another-cluster-00000A")
    nodes = [a.first, a.second, b.first, b.second]
    try:
        start_together(nodes)
        for each in (a, b):
            new = NewTopic(TOPIC, 2, replica_assignment=[[1], [2]])
            admin = AdminClient({"bootstrap.servers": each.first.bootstrap})
            admin.create_topics([new])[TOPIC].result(60)
        yield a, b
    finally:
        for node in nodes:
            if node.process is not None:
                node.kill()


@pytest.fixture
def java() -> Iterator[Program]:
    if not (cache("4.4") / "libs").is_dir():
        pytest.skip("needs the jars of Apache Kafka 4.4: python -m peers.kafka install")
    started = Program(java_program("ClientLines", "4.4"))
    yield started
    started.close()


def refused(at: Pair) -> int:
    """How often the second node has refused a client that meant another node."""
    with urllib.request.urlopen(f"http://127.0.0.1:{at.http}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(int(float(each.rpartition(" ")[2])) for each in lines if each.startswith(_REFUSED))


def ends(at: Pair) -> list[int]:
    client = Cluster(ClientConfig((at.first.bootstrap,), request_timeout_s=30))
    try:
        found = client.offsets({TopicPartition(TOPIC, number): LATEST for number in (ON_FIRST, ON_SECOND)})
        return [found[TopicPartition(TOPIC, number)].offset for number in (ON_FIRST, ON_SECOND)]
    finally:
        client.close()


def batch(value: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": [value, value], "partition": pa.array([ON_FIRST, ON_SECOND], pa.int32())})


def test_clients_stay_with_their_cluster(clusters: tuple[Pair, Pair], java: Program) -> None:
    a, b = clusters
    client = Cluster(ClientConfig((a.first.bootstrap,), request_timeout_s=30))
    producer = Producer(client)
    producer.send(TOPIC, batch(b"before"))
    producer.flush()
    assert java.ask(f"open {a.first.bootstrap} {TOPIC}")[0] == "ok"
    for number in (ON_FIRST, ON_SECOND):
        assert java.ask(f"send {TOPIC} {number} before")[0] == "ok"
    assert java.ask("sent")[0] == "0,1 1,1"
    seen: set[str] = set()

    def polled() -> set[str]:
        answer, _ = java.ask("poll 100")
        assert not answer.startswith("thrown"), answer
        seen.update(answer.split())
        return seen

    until(polled, lambda found: len(found) == 4)

    a.second.kill()  # so that its cluster still names its address: no other voter is there to fence it
    b.second.stop()
    port_a, port_b = a.second.port, b.second.port
    move(b.second, port_a)
    b.second.start()
    before = refused(b)
    assert java.ask(f"send {TOPIC} {ON_SECOND} behind")[0] == "ok"
    until(lambda: refused(b), lambda count: count >= before + 3)
    client.close()  # connections, not what is known of the cluster
    with pytest.raises(OtherNode):
        client.connect(2)

    move(a.second, port_b)
    a.second.start()
    assert java.ask("sent")[0] == "1,2"
    until(polled, lambda found: len(found) == 5)
    producer.send(TOPIC, batch(b"behind"))
    producer.flush()
    until(polled, lambda found: len(found) == 7)
    assert ends(a) == [3, 4]
    assert ends(b) == [0, 0]
    for number in (ON_FIRST, ON_SECOND):
        at = TopicPartition(TOPIC, number)
        assert client.offsets({at: EARLIEST})[at].offset == 0
    client.close()
