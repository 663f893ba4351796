"""A node of Ottla and one of Apache Kafka 4.4 begin at the levels of 4.3, by `ottla storage format`, and go to those of
4.4 while clients are at work: by Ottla's command where Kafka's node is the controller, by Kafka's where Ottla's is.

What no cheaper test finds: that real Kafka starts on levels that this command chose, and that the brokers of both kinds
serve over the change. `test_mixed_quorum.py` has the controllers alone.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.metadata.features import METADATA_VERSION_4_3, METADATA_VERSION_4_4, default_levels, release_levels
from peers.kafka import KafkaPeer, start_fast
from tests.cluster.admin import brokers, create, in_sync_sets, leaders, until
from tests.cluster.brokers.test_failover import read
from tests.cluster.brokers.test_life import produce
from tests.cluster.brokers.test_replication import committed
from tests.cluster.kafka.test_mixed_quorum import CLUSTER_ID, levels
from tests.cluster.processes import ONE_REPLICA, Voter, ottla_broker
from tests.conformance.shell import Shell
from tests.node import FOR_EVER, NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

CONTROLS, FOLLOWS = 1, 2
BOTH = [CONTROLS, FOLLOWS]
PATIENT = {"broker.session.timeout.ms": "60000", "broker.heartbeat.interval.ms": "200"}
SETTINGS = {
    **ONE_REPLICA, **PATIENT,
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip


def ottla(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "ottla.cli.main", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def format_(settings: Mapping[str, str] | Path, data: Path) -> None:
    """By the command, at the levels of 4.3."""
    if isinstance(settings, Path):
        said = ["--config", str(settings)]
    else:
        said = [str(data), *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))]
    ottla("storage", "format", *said, "--cluster-id", CLUSTER_ID, "--release-version", "4.3")


class Clients:
    """A group that is at work from the beginning, and what it has to get."""

    def __init__(self, nodes: Mapping[int, NodeProcess | KafkaPeer]) -> None:
        self.nodes = nodes
        self.bootstrap = ",".join(each.bootstrap for each in nodes.values())
        self.written: list[str] = []
        self.assigned: list[int] = []
        self.consumer = Consumer(self._settings("g"))
        self.consumer.subscribe(["t"], on_assign=lambda *_: self.assigned.append(1))

    def _settings(self, group: str) -> dict[str, str | int | bool]:
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "enable.auto.commit": False,
        }

    def work(self, turn: str) -> None:
        """Records to a leader of each kind, by each address, come to the group, which commits them."""
        for node, peer in self.nodes.items():
            values = [f"{turn}-{node}-{number}" for number in range(50)]
            produce(peer.bootstrap, "t", values)
            assert sorted(read(self.consumer, len(values))) == sorted(values)
            self.written += values
        until(lambda: committed(self.consumer), bool)
        offsets = self.consumer.committed([TopicPartition("t", number) for number in range(2)], 60)
        assert sum(each.offset for each in offsets) == len(self.written)

    def read_by_a_new_group(self) -> None:
        """With the protocol of KIP-848."""
        consumer = Consumer({**self._settings("new"), "group.protocol": "consumer"})
        try:
            consumer.subscribe(["t"])
            assert sorted(read(consumer, len(self.written))) == sorted(self.written)
        finally:
            consumer.close()


def serve_over_the_change(nodes: Mapping[int, NodeProcess | KafkaPeer], upgrade: list[str], shell: Shell) -> None:
    bootstrap = nodes[FOLLOWS].bootstrap
    until(lambda: brokers(bootstrap), {CONTROLS: False, FOLLOWS: False}.__eq__)
    for node in nodes.values():
        assert levels(node.bootstrap) == default_levels(METADATA_VERSION_4_3)
    assert create(bootstrap, "t", 2, factor=2) == 0
    until(lambda: in_sync_sets(bootstrap, "t"), [BOTH, BOTH].__eq__)
    assert {leader for leader, _ in leaders(bootstrap, "t")} == set(BOTH)
    clients = Clients(nodes)
    try:
        clients.work("before")
        wanted = release_levels(METADATA_VERSION_4_4)
        if upgrade[0] == "FeatureCommand":
            shell.run(upgrade[0], "--bootstrap-server", bootstrap, *upgrade[1:])
        else:
            told = ottla(*upgrade, "--bootstrap", bootstrap)
            assert "metadata.version is 33 (4.4-IV2) (was 30 (4.3-IV0))" in told and "share.version is 2" in told
            assert "kraft.version is 1 (was 0)" in told
        for node in nodes.values():
            until(lambda node=node: levels(node.bootstrap), wanted.__eq__)  # type: ignore[misc]
        clients.work("after")
        clients.read_by_a_new_group()
        assert len(clients.assigned) == 1
        described = ottla("group", "list", "--bootstrap", bootstrap)
        assert "new" in described and "g" in described.split()
    finally:
        clients.consumer.close()


def test_by_ottlas_command_where_kafka_controls(tmp_path: Path, shell: Shell) -> None:
    kafka = KafkaPeer(
        tmp_path / "kafka",
        node_id=CONTROLS,
        heap="384m",
        release="4.4",
        flags=start_fast("4.4"),
        cluster_id=CLUSTER_ID,
        settings=SETTINGS,
    )
    format_(kafka.write_properties(), kafka.data)
    broker = ottla_broker(tmp_path / "ottla", kafka.controllers, SETTINGS, node_id=FOLLOWS)
    with contextlib.ExitStack() as stack:
        stack.callback(kafka.kill)
        kafka.start()
        stack.enter_context(broker)
        serve_over_the_change({CONTROLS: kafka, FOLLOWS: broker}, ["features", "upgrade", "--release", "4.4"], shell)


def test_by_kafkas_tool_where_ottla_controls(tmp_path: Path, shell: Shell) -> None:
    node = Voter(tmp_path / "ottla", is_broker=True)
    node.settings = {
        "process.roles": "broker,controller",
        "node.id": str(CONTROLS),
        "controller.listener.names": "CONTROLLER",
        "listeners": node.listeners,
        "controller.quorum.voters": f"{CONTROLS}@{node.controller}",
        **FOR_EVER,
        **SETTINGS,
    }
    format_(node.settings, node.data)
    kafka = KafkaPeer(
        tmp_path / "kafka",
        roles="broker",
        node_id=FOLLOWS,
        heap="384m",
        release="4.4",
        flags=start_fast("4.4"),
        voters=f"{CONTROLS}@{node.controller}",
        cluster_id=CLUSTER_ID,
        settings=SETTINGS,
    )
    format_(kafka.write_properties(), kafka.data)
    with contextlib.ExitStack() as stack:
        stack.enter_context(node)
        stack.callback(kafka.kill)
        kafka.start()
        serve_over_the_change(
            {CONTROLS: node, FOLLOWS: kafka}, ["FeatureCommand", "upgrade", "--release-version", "4.4"], shell
        )
