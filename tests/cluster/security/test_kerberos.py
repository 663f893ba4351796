"""Nodes that log in at each other by GSSAPI, brokers and controllers alike: Ottla's own, and with Apache Kafka's."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.process import reserve
from peers.kafka import KafkaPeer, new_cluster_id, start_fast
from tests.cluster.admin import until
from tests.cluster.processes import ONE_REPLICA, QUICK, Voter, ottla_quorum, start_together
from tests.conformance.security.test_kerberos import SERVICE, KerberosNode, jaas
from tests.kerberos import NoKerberos, Realm, package
from tests.node import FOR_EVER

PROTOCOLS = "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"


class KerberosVoter(Voter, KerberosNode):
    """A node of a quorum."""


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    """Its tickets last for eight seconds."""
    try:
        package()
        made = Realm(tmp_path / "realm", life="8s")
    except NoKerberos as error:
        pytest.skip(f"no Kerberos here: {error}")
    made.add(SERVICE)
    yield made
    made.close()


def logins(realm: Realm) -> dict[str, str]:
    found = {
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "INTERNAL",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.min.time.before.relogin": "1000",
        "connections.max.reauth.ms": "3000",
    }
    key = jaas(realm.keytab(SERVICE), SERVICE)
    return found | {f"listener.name.{each}.gssapi.sasl.jaas.config": key for each in ("internal", "controller")}


def write_and_read(bootstrap: str, topic: NewTopic, seconds: float, count: int) -> None:
    """As many records, over so many seconds, with acks=all; then all of them are read. Every broker must be there."""
    settings = {"bootstrap.servers": bootstrap}
    admin = AdminClient(settings)
    until(lambda: len(admin.list_topics(timeout=10).brokers), lambda found: found == count)
    for future in admin.create_topics([topic]).values():
        future.result(60)
    producer = Producer({**settings, "acks": "all", "linger.ms": 20})
    for number in range(1000):
        producer.produce("t", b"%d" % number, partition=number % 2)
        producer.poll(seconds / 1000)
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", number, 0) for number in (0, 1)])
    read, deadline = 0, time.monotonic() + 60
    while read < 1000 and time.monotonic() < deadline:
        read += sum(1 for each in consumer.consume(500, 1) if not each.error())
    consumer.close()
    assert read == 1000


@pytest.mark.nightly("tests/unit/server/security/test_kerberos.py::test_clients_and_nodes_log_in")
def test_three_nodes(tmp_path: Path, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than a ticket lasts: sessions and tickets are renewed."""
    monkeypatch.setattr(KerberosNode, "realm", realm, raising=False)
    monkeypatch.setattr("tests.cluster.processes.Voter", KerberosVoter)
    nodes = ottla_quorum(tmp_path, settings={**logins(realm), "offsets.topic.replication.factor": "3"})
    held = [reserve(0) for _ in nodes]
    voters = []
    for node, internal in zip(nodes, held, strict=True):
        assert isinstance(node, Voter)
        port = internal.getsockname()[1]
        own = node.listeners.replace("127.0.0.1", "localhost")
        node.settings["listeners"] = f"{own},INTERNAL://localhost:{port}"
        voters.append(f"{node.settings['node.id']}@localhost:{node.controller.rpartition(':')[2]}")
    for node in nodes:
        node.settings["controller.quorum.voters"] = ",".join(voters)
    start_together(nodes)
    try:
        topic = NewTopic("t", 2, 3, config={"min.insync.replicas": "3"})
        write_and_read(",".join(each.bootstrap for each in nodes), topic, 20, 3)
    finally:
        for node in nodes:
            node.stop()
        for each in held:
            each.close()
    printed = "".join(node.output.read_text() for node in nodes)
    assert "cannot log in" not in printed and "authentication failed" not in printed


@pytest.mark.nightly("tests/unit/server/security/test_kerberos.py::test_clients_and_nodes_log_in")
@pytest.mark.parametrize("first", ["ottla", "kafka"])
def test_with_kafka(tmp_path: Path, realm: Realm, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Node 1 is controller and broker, node 2 a broker of the other kind; each leads what the other one copies."""
    if shutil.which("java") is None:
        pytest.skip("no Java here to run Apache Kafka with")
    held = [reserve(0) for _ in range(3)]
    inner, other, controller = (f"localhost:{each.getsockname()[1]}" for each in held)
    cluster_id = new_cluster_id()
    ottla_id, kafka_id = (1, 2) if first == "ottla" else (2, 1)
    ottla = KerberosNode(tmp_path / "ottla")
    ottla.realm = realm
    kafka = KafkaPeer(
        tmp_path / "kafka",
        roles="broker,controller" if kafka_id == 1 else "broker",
        node_id=kafka_id,
        heap="512m",
        release="4.4",
        flags=[*start_fast("4.4"), f"-Djava.security.krb5.conf={realm.configuration}"],
        cluster_id=cluster_id,
        voters=f"1@{controller}",
    )
    for node_id, port, settings in ((ottla_id, ottla.port, ottla.settings), (kafka_id, kafka.port, kafka.settings)):
        own = [f"PLAINTEXT://127.0.0.1:{port}", f"INTERNAL://{inner if node_id == 1 else other}"]
        settings |= {
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*own, *([f"CONTROLLER://{controller}"] if node_id == 1 else [])]),
            "advertised.listeners": ",".join(own),
            **logins(realm),
            **ONE_REPLICA,
            **QUICK,
        }
    roles = "broker,controller" if ottla_id == 1 else "broker"
    ottla.settings |= {"process.roles": roles, "node.id": str(ottla_id), "ottla.cluster.id": cluster_id, **FOR_EVER}
    for each in held:
        each.close()
    kafka.format()
    begun = (ottla.start, kafka.start) if ottla_id == 1 else (kafka.start, ottla.start)
    try:
        for start in begun:
            start()
        topic = NewTopic("t", 2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "2"})
        write_and_read(f"{ottla.bootstrap},{kafka.bootstrap}", topic, 12, 2)
    finally:
        kafka.stop()
        if ottla.process is not None:
            ottla.stop()
    printed = ottla.output.read_text()
    assert "cannot log in" not in printed and "authentication failed" not in printed
