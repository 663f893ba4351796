"""Ottla and Apache Kafka in one cluster whose nodes reach each other only over TLS, with certificates on both sides."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.process import reserve
from peers.kafka import KafkaPeer, new_cluster_id, start_fast
from tests.certificates import Authority, ssl_settings
from tests.cluster.admin import until
from tests.cluster.processes import ONE_REPLICA, QUICK
from tests.node import FOR_EVER, NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

AUTHORITY = Authority()
PROTOCOLS = "PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL"


def secured(directory: Path, node_id: int, controller: str, listeners: Mapping[str, str]) -> dict[str, str]:
    """The settings of node `node_id` that have to do with listeners. Node 1 is the controller."""
    own = ",".join(f"{name}://{address}" for name, address in listeners.items())
    return {
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "INTERNAL",
        "listeners": own,
        "advertised.listeners": ",".join(each for each in own.split(",") if not each.startswith("CONTROLLER")),
        **ssl_settings(
            directory / f"tls-{node_id}", AUTHORITY, AUTHORITY.issue(f"node-{node_id}"), client_auth="required"
        ),
        **ONE_REPLICA,
        **QUICK,
    }


@pytest.mark.nightly("tests/unit/server/listeners/test_tls.py::test_three_nodes_reach_each_other_only_by_certificate")
@pytest.mark.parametrize("first", ["ottla", "kafka"])
def test_records_are_copied_both_ways(tmp_path: Path, first: str) -> None:
    """Node 1 is controller and broker, node 2 a broker of the other kind. Each leads a partition that the other one
    copies, so each is client and server of the other, and one asks the other's controller."""
    held = [reserve(0) for _ in range(3)]
    inner, other, controller = (f"127.0.0.1:{each.getsockname()[1]}" for each in held)
    cluster_id = new_cluster_id()
    ottla_id, kafka_id = (1, 2) if first == "ottla" else (2, 1)
    addresses = {1: inner, 2: other}
    ottla = NodeProcess(tmp_path / "ottla")
    kafka = KafkaPeer(
        tmp_path / "kafka",
        roles="broker,controller" if kafka_id == 1 else "broker",
        node_id=kafka_id,
        heap="512m",
        release="4.4",
        flags=start_fast("4.4"),
        cluster_id=cluster_id,
        voters=f"1@{controller}",
    )
    for node_id, port, settings in ((ottla_id, ottla.port, ottla.settings), (kafka_id, kafka.port, kafka.settings)):
        listeners = {"PLAINTEXT": f"127.0.0.1:{port}", "INTERNAL": addresses[node_id]}
        if node_id == 1:
            listeners["CONTROLLER"] = controller
        settings.update(secured(tmp_path, node_id, controller, listeners))
    roles = "broker,controller" if ottla_id == 1 else "broker"
    ottla.settings |= {"process.roles": roles, "node.id": str(ottla_id), "ottla.cluster.id": cluster_id, **FOR_EVER}
    for each in held:
        each.close()
    kafka.format()
    begun = (ottla.start, kafka.start) if ottla_id == 1 else (kafka.start, ottla.start)
    try:
        for start in begun:
            start()
        admin = AdminClient({"bootstrap.servers": f"{ottla.bootstrap},{kafka.bootstrap}"})
        until(lambda: len(admin.list_topics(timeout=10).brokers), lambda count: count == 2)
        topic = NewTopic(
            "t", num_partitions=2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "2"}
        )
        for future in admin.create_topics([topic]).values():
            future.result(60)
        producer = Producer({"bootstrap.servers": ottla.bootstrap, "acks": "all"})
        for number in range(2000):
            producer.produce("t", b"%d" % number * 100, partition=number % 2)
        assert producer.flush(60) == 0
        for bootstrap in (ottla.bootstrap, kafka.bootstrap):
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": bootstrap, "enable.auto.commit": False})
            consumer.assign([TopicPartition("t", number, 0) for number in (0, 1)])
            read = 0
            while read < 2000:
                read += sum(1 for each in consumer.consume(min(500, 2000 - read), 30) if not each.error())
            consumer.close()
    finally:
        kafka.stop()
        if ottla.process is not None:
            ottla.stop()
