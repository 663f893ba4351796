"""Kafka's tools and several brokers of Apache Kafka at a controller of Ottla."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from tests.cluster.admin import brokers, create, in_sync, until
from tests.cluster.processes import CONTROLLER_ID, cluster_id, kafka_broker, ottla_controller
from tests.conformance.shell import Shell

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")


def test_kafkas_tools_ask_the_controller(tmp_path: Path, shell: Shell) -> None:
    with ottla_controller(tmp_path / "controller") as controller:
        address = ("--bootstrap-controller", controller.bootstrap)
        status = shell.run("MetadataQuorumCommand", *address, "describe", "--status").out
        assert f"LeaderId:               {CONTROLLER_ID}" in status
        assert f"CONTROLLER://{controller.bootstrap}" in status
        features = shell.run("FeatureCommand", *address, "describe").out
        assert "metadata.version" in features
        config = ("ConfigCommand", *address, "--entity-type", "brokers", "--entity-default")
        shell.run(*config, "--alter", "--add-config", "log.retention.ms=5000")
        assert "log.retention.ms=5000" in shell.run(*config, "--describe").out


def test_two_kafka_brokers_replicate_under_a_controller_of_ottla(tmp_path: Path) -> None:
    """One is killed: it leaves the ISR, and comes back into it by its leader's AlterPartition."""
    quick = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "2000"}
    with contextlib.ExitStack() as stack:
        controller = stack.enter_context(ottla_controller(tmp_path / "controller", quick))
        cluster = controller.bootstrap, cluster_id(controller)
        peers = [kafka_broker(tmp_path / f"broker{number}", *cluster, node_id=number) for number in (1, 2)]
        for peer in peers:
            peer.settings.update(quick)
            stack.callback(peer.kill)  # nobody reads its files any more
            peer.start()
        first, second = peers
        until(lambda: brokers(first.bootstrap), {1: False, 2: False}.__eq__)
        assert create(first.bootstrap, "t", replicas=[1, 2]) == 0
        until(lambda: in_sync(first.bootstrap, "t"), [1, 2].__eq__)
        second.kill()
        until(lambda: in_sync(first.bootstrap, "t"), [1].__eq__)
        second.start()
        until(lambda: in_sync(first.bootstrap, "t"), [1, 2].__eq__)
        assert brokers(first.bootstrap) == {1: False, 2: False}
