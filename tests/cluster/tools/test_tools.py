"""Kafka's tools that move replicas and leaders, at brokers and a controller of Ottla."""

from __future__ import annotations

import json
import operator
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from peers.kafka import START_FAST, java
from tests.cluster.admin import brokers, create, in_sync, in_sync_sets, leaders, quorum, until
from tests.cluster.brokers.test_life import consume, produce
from tests.cluster.processes import QUICK, ottla_broker, ottla_controller
from tests.conformance.shell import Shell

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def test_a_move_between_directories(tmp_path: Path, shell: Shell) -> None:
    """Kafka's tool moves a replica to another log directory of its broker, and a new one to the directory it names."""
    two_directories = {**QUICK, "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    with (
        ottla_controller(tmp_path / "controller", QUICK) as controller,
        ottla_broker(tmp_path / "one", controller.bootstrap, QUICK, node_id=1) as one,
        ottla_broker(tmp_path / "two", controller.bootstrap, two_directories, node_id=2) as two,
    ):
        until(lambda: brokers(one.bootstrap), {1: False, 2: False}.__eq__)
        assert create(one.bootstrap, "t", replicas=[1]) == 0
        values = [f"{number}".ljust(1000, ".") for number in range(1000)]
        produce(one.bootstrap, "t", values)
        address = ("--bootstrap-server", one.bootstrap)
        plan = tmp_path / "plan.json"
        reassign = (REASSIGN, *address, "--reassignment-json-file", str(plan))
        for name, other in (("b", "a"), ("a", "b")):
            where = {"topic": "t", "partition": 0, "replicas": [2], "log_dirs": [str(tmp_path / name)]}
            plan.write_text(json.dumps({"version": 1, "partitions": [where]}))
            assert "Successfully started" in shell.run(*reassign, "--execute").out
            until((tmp_path / name / "t-0").exists, bool)
            until((tmp_path / other / "t-0").exists, operator.not_)
            until(lambda: in_sync(one.bootstrap, "t"), [2].__eq__)
        assert consume(two.bootstrap, "t") == values


def test_a_throttled_move_and_its_end(tmp_path: Path, shell: Shell) -> None:
    """Kafka's tool sets the throttle, it holds; `--cancel` takes the move back, `--verify` the throttle (KIP-73)."""
    with (
        ottla_controller(tmp_path / "controller", QUICK) as controller,
        ottla_broker(tmp_path / "one", controller.bootstrap, QUICK, node_id=1) as one,
        ottla_broker(tmp_path / "two", controller.bootstrap, QUICK, node_id=2),
    ):
        until(lambda: brokers(one.bootstrap), {1: False, 2: False}.__eq__)
        assert create(one.bootstrap, "t", replicas=[1]) == 0
        produce(one.bootstrap, "t", [f"{number}".ljust(10_000, ".") for number in range(1000)])
        address = ("--bootstrap-server", one.bootstrap)
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}))
        reassign = (REASSIGN, *address, "--reassignment-json-file", str(plan))
        slow = ("--throttle", "50000")
        assert "The inter-broker throttle limit was set to 50000 B/s" in shell.run(*reassign, "--execute", *slow).out
        settings = ("ConfigCommand", *address, "--describe", "--entity-type")
        assert "leader.replication.throttled.rate=50000" in shell.run(*settings, "brokers", "--entity-name", "1").out
        assert "follower.replication.throttled.replicas=0:2" in shell.run(*settings, "topics", "--entity-name", "t").out
        assert "is still in progress" in shell.run(*reassign, "--verify").out, "10 MB take 200 s"
        cancelled = shell.run(*reassign, "--cancel").out
        assert "Successfully cancelled partition reassignment for: t-0" in cancelled
        until(lambda: in_sync(one.bootstrap, "t"), [1].__eq__)
        assert "No partition reassignments found." in shell.run(REASSIGN, *address, "--list").out
        assert "throttled" not in shell.run(*settings, "brokers", "--entity-name", "1").out
        assert "throttled" not in shell.run(*settings, "topics", "--entity-name", "t").out
        assert "Successfully started" in shell.run(*reassign, "--execute", *slow).out
        faster = ("--additional", "--throttle", "500000000")
        assert "Successfully started partition reassignment" in shell.run(*reassign, "--execute", *faster).out
        until(lambda: in_sync(one.bootstrap, "t"), [2].__eq__)
        done = shell.run(*reassign, "--verify").out
        assert "Reassignment of partition t-0 is completed." in done
        assert "Clearing broker-level throttles" in done and "Clearing topic-level throttles" in done
        assert "throttled" not in shell.run(*settings, "brokers", "--entity-name", "1").out
        assert "throttled" not in shell.run(*settings, "topics", "--entity-name", "t").out


def test_kafkas_tools_move_replicas_and_leaders(tmp_path: Path, shell: Shell) -> None:
    with (
        ottla_controller(tmp_path / "controller", QUICK) as controller,
        ottla_broker(tmp_path / "one", controller.bootstrap, QUICK, node_id=1) as one,
        ottla_broker(tmp_path / "two", controller.bootstrap, QUICK, node_id=2) as two,
    ):
        until(lambda: brokers(one.bootstrap), {1: False, 2: False}.__eq__)
        assert create(one.bootstrap, "t", replicas=[1]) == 0
        address = ("--bootstrap-server", one.bootstrap)
        plan = tmp_path / "plan.json"
        moves = [{"topic": "t", "partition": 0, "replicas": [2, 1], "log_dirs": ["any", "any"]}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        reassign = (REASSIGN, *address, "--reassignment-json-file", str(plan))
        assert "Successfully started partition reassignment for t-0" in shell.run(*reassign, "--execute").out
        until(lambda: in_sync(one.bootstrap, "t"), [1, 2].__eq__)
        assert "Reassignment of partition t-0 is completed." in shell.run(*reassign, "--verify").out
        assert "No partition reassignments found." in shell.run(REASSIGN, *address, "--list").out
        elect = ("LeaderElectionCommand", *address, "--election-type", "preferred", "--all-topic-partitions")
        assert [leader for leader, _ in leaders(one.bootstrap, "t")] == [1]
        assert "Successfully completed leader election (PREFERRED) for partitions t-0" in shell.run(*elect).out
        until(lambda: [leader for leader, _ in leaders(one.bootstrap, "t")], [2].__eq__)
        assert "t-0" in shell.run("LogDirsCommand", *address, "--describe", "--topic-list", "t").out
        assert "eligible.leader.replicas.version" in shell.run("FeatureCommand", *address, "describe").out
        two.stop()
        until(lambda: brokers(one.bootstrap), {1: False, 2: True}.__eq__)
        assert "Broker 2 is no longer registered." in shell.run("ClusterTool", "unregister", *address, "--id", "2").out
        until(lambda: brokers(one.bootstrap), {1: False}.__eq__)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three nodes that are broker and controller each."""
    with Cluster(3, {"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


def test_quorum_cluster_features_and_directories(three: Cluster, shell: Shell) -> None:
    address = ("--bootstrap-server", three.bootstrap)
    found = quorum(three.addresses[1])
    status = shell.run("MetadataQuorumCommand", *address, "describe", "--status").out
    assert re.search(rf"LeaderId: +{found['leader_id']}\n", status)
    assert all(f'"id": {node}' in status for node in three.nodes)
    replication = shell.run("MetadataQuorumCommand", *address, "describe", "--replication").lines()
    states = {int(row.split()[0]): row.split()[-1] for row in replication[1:] if row.strip()}
    assert states == {node: "Leader" if node == found["leader_id"] else "Follower" for node in three.nodes}
    assert re.fullmatch(r"Cluster ID: \S{22}\n", shell.run("ClusterTool", "cluster-id", *address).out)
    endpoints = shell.run("ClusterTool", "list-endpoints", *address).out
    assert all(re.search(rf"^{node} +127\.0\.0\.1 ", endpoints, re.MULTILINE) for node in three.nodes)
    described = shell.run("FeatureCommand", *address, "describe").out
    assert "metadata.version" in described
    upgrade = ("upgrade", "--feature", "group.version=1", "--dry-run")
    tried = shell.run("FeatureCommand", *address, *upgrade, check=False)
    assert "group.version" in tried.out + tried.err
    directories = json.loads(shell.run("LogDirsCommand", *address, "--describe").lines()[-1])
    assert sorted(each["broker"] for each in directories["brokers"]) == three.nodes
    assert all(each["error"] is None for broker in directories["brokers"] for each in broker["logDirs"])


def test_a_plan_is_generated_cancelled_and_carried_out(three: Cluster, shell: Shell, tmp_path: Path) -> None:
    one = three.addresses[1]
    assert create(one, "moved", replicas=[1, 2]) == 0
    produce(three.bootstrap, "moved", [str(number) for number in range(100)])
    address = ("--bootstrap-server", three.bootstrap)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    generate = (REASSIGN, *address, "--topics-to-move-json-file", str(topics), "--broker-list", "2,3", "--generate")
    lines = shell.run(*generate).lines()
    plan = tmp_path / "plan.json"
    plan.write_text(lines[lines.index("Proposed partition reassignment configuration") + 1])
    assert sorted(json.loads(plan.read_text())["partitions"][0]["replicas"]) == [2, 3]
    carry_out = (REASSIGN, *address, "--reassignment-json-file", str(plan))
    shell.run(*carry_out, "--execute")
    until(lambda: in_sync(one, "moved"), [2, 3].__eq__)
    assert "Reassignment of partition moved-0 is completed." in shell.run(*carry_out, "--verify").out
    assert "Error" not in shell.run(*carry_out, "--cancel", check=False).out


def test_leaders_are_elected_where_they_are_preferred(three: Cluster, shell: Shell) -> None:
    """After a restart of each node; one partition by name, then all."""
    one = three.addresses[1]
    assert create(one, "led", 6, factor=3) == 0
    preferred = [leader for leader, _ in leaders(one, "led")]
    for node in three.nodes[:2]:
        three.restart(node)
        until(lambda: in_sync_sets(one, "led"), lambda found: found == [[1, 2, 3]] * 6)
    moved = [number for number, (leader, _) in enumerate(leaders(one, "led")) if leader != preferred[number]]
    assert len(moved) > 1
    elect = ("LeaderElectionCommand", "--bootstrap-server", three.bootstrap, "--election-type", "preferred")
    said = shell.run(*elect, "--topic", "led", "--partition", str(moved[0])).out
    assert f"Successfully completed leader election (PREFERRED) for partitions led-{moved[0]}" in said
    until(lambda: leaders(one, "led")[moved[0]][0], preferred[moved[0]].__eq__)
    assert "Successfully completed" in shell.run(*elect, "--all-topic-partitions").out
    until(lambda: [leader for leader, _ in leaders(one, "led")], preferred.__eq__)


def test_replicas_are_verified(three: Cluster) -> None:
    """It fetches each replica as a follower would, and compares them. It runs until it is stopped."""
    assert create(three.addresses[1], "verified", 2, factor=3) == 0
    produce(three.bootstrap, "verified", [str(number) for number in range(200)])
    command = java(
        "org.apache.kafka.tools.ReplicaVerificationTool",
        "--broker-list",
        three.bootstrap,
        "--topics-include",
        "verified",
        "--time",
        "-2",
        "--report-interval-ms",
        "200",
        "--max-wait-ms",
        "100",
        flags=START_FAST,
    )
    printed = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        stop = threading.Timer(120, process.kill)
        stop.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                printed.append(line)
                if found := re.search(
                    r"max lag is 0 for partition verified-\d at offset (\d+) among 2 partitions", line
                ):
                    assert int(found[1]) > 0
                    return
        finally:
            stop.cancel()
            process.kill()
    raise AssertionError("".join(printed))
