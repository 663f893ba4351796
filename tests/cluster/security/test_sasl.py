"""Nodes that log in at each other: PLAIN between all, and SCRAM users that the cluster begins with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.processes import Voter, ottla_quorum, start_together
from tests.node import NodeProcess

JAAS = "org.apache.kafka.common.security.{}LoginModule required {};"
NODE = 'username="node" password="node-secret"'
USERS = f'{NODE} user_node="node-secret" user_alice="alice-secret"'
PLAIN = {
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": JAAS.format("plain.Plain", USERS),
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS.format("plain.Plain", USERS),
    "offsets.topic.replication.factor": "3",
    "connections.max.reauth.ms": "3000",
}
SCRAM = {
    **PLAIN,
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": JAAS.format("scram.Scram", NODE),
}


def three(directory: Path, settings: Mapping[str, str]) -> list[NodeProcess]:
    nodes = ottla_quorum(directory, settings=settings)
    for node in nodes:
        assert isinstance(node, Voter)
        node.settings["listeners"] = node.listeners.replace("PLAINTEXT://", "SASL_PLAINTEXT://", 1)
    return nodes


def client(nodes: list[NodeProcess], mechanism: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(each.bootstrap for each in nodes),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        **more,
    }


def works(nodes: list[NodeProcess], mechanism: str) -> None:
    """A replicated topic is made by whichever node, written with acks=all and read by a group."""
    settings = client(nodes, mechanism)
    admin = AdminClient(settings)
    (made,) = admin.create_topics([NewTopic("t", 3, 3)]).values()
    made.result(60)
    producer = Producer({**settings, "acks": "all"})
    for number in range(300):
        producer.produce("t", str(number).encode())
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: set[bytes] = set()
    while len(found) < 300:
        records = consumer.consume(300, 60)
        assert records
        found |= {value for record in records if (value := record.value()) is not None}
    consumer.close()


@pytest.mark.nightly("tests/cluster/security/test_sasl.py::test_users_that_a_cluster_begins_with")
def test_three_nodes_with_plain(tmp_path: Path) -> None:
    """Sessions between them end every three seconds, and are renewed."""
    nodes = three(tmp_path, PLAIN)
    start_together(nodes)
    try:
        works(nodes, "PLAIN")
    finally:
        for node in nodes:
            node.stop()
    for node in nodes:
        printed = node.output.read_text()
        assert "cannot log in" not in printed and "-secret" not in printed


def test_users_that_a_cluster_begins_with(tmp_path: Path) -> None:
    """Brokers log in at each other by SCRAM, with credentials that were made before the first start (KIP-900)."""
    nodes = three(tmp_path, SCRAM)
    file = tmp_path / "alice"
    file.write_text("SCRAM-SHA-512=[name=alice,password=alice-secret,iterations=8192]\n")
    for node in nodes:
        settings = [part for name, value in node.settings.items() for part in ("--set", f"{name}={value}")]
        command = [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "storage",
            "format",
            str(node.data),
            *settings,
            "--cluster-id",
            node.settings["ottla.cluster.id"],
            "--add-scram",
            "SCRAM-SHA-512=[name=node,password=node-secret]",
            "--add-scram",
            f"@{file}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert "-secret" not in done.stdout + done.stderr
    start_together(nodes)
    try:
        works(nodes, "SCRAM-SHA-512")
    finally:
        for node in nodes:
            node.stop()


@pytest.mark.nightly(
    "tests/unit/drivers/nodes/test_sasl_client.py::test_a_refused_login_says_why_and_is_logged_once_in_a_while"
)
def test_a_node_with_a_wrong_password_says_so(tmp_path: Path) -> None:
    nodes = three(tmp_path, {**PLAIN, "initial.broker.registration.timeout.ms": "2000"})
    wrong = nodes[2].settings["listener.name.controller.plain.sasl.jaas.config"].replace(NODE, NODE.replace("-", "+"))
    nodes[2].settings["listener.name.controller.plain.sasl.jaas.config"] = wrong
    start_together(nodes[:2])
    try:
        with pytest.raises(RuntimeError):
            nodes[2].start()
        printed = nodes[2].output.read_text()
        assert "this node cannot log in at another one" in printed and "Invalid username or password" in printed
        assert "node+secret" not in printed
    finally:
        for node in nodes[:2]:
            node.stop()
