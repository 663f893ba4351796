"""The Arrow producer and the sink's transactions while the leaders and coordinators of three nodes move."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.cluster import TRANSACTION, Cluster
from ottla.client.config import ClientConfig
from ottla.client.producer import Producer
from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.spark.exactly_once import Committer
from tests.cluster.processes import ottla_quorum, start_together
from tests.unit.client.test_producing import read, values
from tests.unit.spark.test_sink_log import Site

THREE = {
    "default.replication.factor": "3", "min.insync.replicas": "2", "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2", "transaction.state.log.num.partitions": "3",
    "broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300",
}  # fmt: skip


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    row = {"name": topic, "num_partitions": partitions, "replication_factor": 3, "assignments": [], "configs": []}
    values = {"topics": [row], "timeout": 20_000, "validate_only": False}
    (answer,) = cluster.ask_any(ApiKey.CREATE_TOPICS, values)["topics"]
    assert not answer["error_code"], answer


def test_nodes_are_killed_while_they_are_written_to(tmp_path: Path) -> None:
    nodes = ottla_quorum(tmp_path, settings=THREE)
    start_together(nodes)
    addresses = tuple(node.bootstrap for node in nodes)
    try:
        cluster = Cluster(ClientConfig(addresses, request_timeout_s=20))
        create(cluster, "t", 3)
        producer = Producer(cluster, batch_bytes=3000)
        producer.start()
        for at in range(0, 9000, 100):
            keys = [b"%d" % number for number in range(at, at + 100)]
            producer.send("t", values(at, 100, key=keys))
            if at == 3000:
                nodes[cluster.leader("t", 0).node_id - 1].kill()
        producer.flush()
        found = read(",".join(addresses), "t", 3)
        assert sorted(int(one.value()) for one in found) == list(range(9000))

        # The dead node comes back, and the coordinator of a decided transaction goes.
        for node in nodes:
            if node.process is None:
                start_together([node])
        site = Site(addresses[0])
        site.config = ClientConfig(addresses, request_timeout_s=20)
        site.cluster = Cluster(site.config)
        create(site.cluster, "written", 1)
        written = [site.write("written", task) for task in range(3)]
        log = site.log()
        committer = Committer(log, "run")
        log.claim()
        nodes[site.cluster.coordinator(TRANSACTION, written[0].transactional_id) - 1].kill()
        try:
            committer.commit(0, written)
        except (KafkaError, OSError) as error:
            pytest.fail(f"the coordinator's move was not waited for: {error}")
        assert site.cluster.leader(*TopicPartition("written", 0)).node_id > 0
        found = read(",".join(addresses), "written")
        assert sorted(int(one.value()) for one in found) == [0, 1, 2, 100, 101, 102, 200, 201, 202]
        site.close()
        cluster.close()
    finally:
        for node in nodes:
            if node.process is not None:
                node.kill()
