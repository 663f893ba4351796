"""Three nodes whose cluster lives in a real ensemble of three: what old tools write there is done, and nothing that
was acknowledged is lost while controllers, servers of the ensemble and all of it go away."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.drivers.zookeeper.tree import read_tree
from ottla.filesystem import OsFileSystem
from ottla.migration.metadata_image import load_image
from ottla.network import SystemNetwork
from ottla.simulation.checks.tree_and_image import differences
from ottla.znodes.tree import Znode
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import ConnectionLossError
from peers.kafka.old import old_tool
from tests.cluster.faults import PARTITIONS, wait_written
from tests.cluster.zookeeper.nodes import OTTLA, NodesInZooKeeper

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here for ZooKeeper")

CHECK_S = 40


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodesInZooKeeper]:
    with NodesInZooKeeper(tmp_path_factory.mktemp("in-zookeeper")) as nodes:
        yield nodes


@pytest.fixture
def kazoo(nodes: NodesInZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(nodes.connect)
    client.start()
    yield client
    client.stop()
    client.close()


def packed(content: Any) -> bytes:
    return json.dumps(content).encode()


def read(kazoo: KazooClient, path: str) -> Any:
    try:
        return json.loads(kazoo.get(path)[0])
    except NoNodeError:
        return None


def test_the_tree_is_that_of_kafka(nodes: NodesInZooKeeper, kazoo: KazooClient) -> None:
    assert nodes.ottla("topic", "create", "kept", "--partitions", "2", "--set", "retention.ms=777").returncode == 0
    assert set(kazoo.get_children("/brokers/ids")) == {"1", "2", "3"}
    assert read(kazoo, "/controller")["brokerid"] == nodes.controller()
    assert read(kazoo, "/config/topics/kept") == {"version": 1, "config": {"retention.ms": "777"}}
    topic, state = read(kazoo, "/brokers/topics/kept"), read(kazoo, "/brokers/topics/kept/partitions/0/state")
    assert topic["version"] == 3 and sorted(topic["partitions"]) == ["0", "1"] and topic["topic_id"]
    assert state["leader"] in state["isr"] and sorted(state["isr"]) == sorted(topic["partitions"]["0"])


def test_what_old_tools_write_is_done(nodes: NodesInZooKeeper, kazoo: KazooClient) -> None:
    """As `kafka-topics`, `kafka-configs`, `kafka-reassign-partitions` and `kafka-preferred-replica-election` of 2.x do
    with `--zookeeper`."""
    kazoo.create("/config/topics/made", packed({"version": 1, "config": {"retention.ms": "5000"}}))
    kazoo.create("/brokers/topics/made", packed({"version": 2, "partitions": {"0": [1, 2]}}))
    state = "/brokers/topics/made/partitions/0/state"
    assert nodes.await_that(lambda: read(kazoo, state), "state")["leader"] == 1
    assert "retention.ms  5000" in nodes.ottla("topic", "describe", "made").stdout
    assert nodes.ottla("produce", "made", "one").returncode == 0

    topic = read(kazoo, "/brokers/topics/made")
    kazoo.set("/brokers/topics/made", packed({**topic, "partitions": {"0": [1, 2], "1": [3, 1]}}))
    nodes.await_that(lambda: read(kazoo, "/brokers/topics/made/partitions/1/state"), "second partition")

    kazoo.set("/config/topics/made", packed({"version": 1, "config": {"retention.ms": "6000"}}))
    kazoo.create("/config/users/alice", packed({"version": 1, "config": {"producer_byte_rate": "1000"}}))
    for entity in ("topics/made", "users/alice"):
        change = packed({"version": 2, "entity_path": entity})
        kazoo.create("/config/changes/config_change_", change, sequence=True)
    nodes.await_that(lambda: "6000" in nodes.ottla("topic", "describe", "made").stdout, "setting")
    nodes.await_that(lambda: "alice" in nodes.ottla("quota", "list").stdout, "quota")

    wish = {"version": 1, "partitions": [{"topic": "made", "partition": 0, "replicas": [2, 3]}]}
    kazoo.create("/admin/reassign_partitions", packed(wish))
    nodes.await_that(lambda: read(kazoo, "/brokers/topics/made")["partitions"]["0"] == [2, 3], "move")
    nodes.await_that(lambda: kazoo.exists("/admin/reassign_partitions") is None, "end of the move")
    kazoo.create("/admin/preferred_replica_election", packed({"partitions": [{"topic": "made", "partition": 0}]}))
    nodes.await_that(lambda: kazoo.exists("/admin/preferred_replica_election") is None, "end of the election")
    nodes.await_that(lambda: read(kazoo, state)["leader"] == 2, "preferred leader")
    assert nodes.ottla("consume", "made", "--from", "beginning").stdout == "one\n"

    kazoo.create("/admin/delete_topics/made")
    nodes.await_that(lambda: kazoo.exists("/brokers/topics/made") is None, "deletion")
    nodes.await_that(lambda: kazoo.get_children("/admin/delete_topics") == [], "end of the deletion")
    assert kazoo.exists("/config/topics/made") is None


TOPICS, CONFIGS, MOVES, ELECTIONS = (
    "kafka.admin.TopicCommand", "kafka.admin.ConfigCommand", "kafka.admin.ReassignPartitionsCommand",
    "kafka.admin.PreferredReplicaLeaderElectionCommand",
)  # fmt: skip


@pytest.mark.nightly(
    "tests/cluster/zookeeper/test_in_zookeeper.py::test_what_old_tools_write_is_done",
    "tests/unit/metadata/test_members.py::test_old_tools_can_read_a_broker",
)
def test_the_tools_of_2_8_themselves(nodes: NodesInZooKeeper, tmp_path: Path) -> None:
    """They also read: one refused the znodes of all brokers, since a feature was supported from level 0 on."""

    def tool(name: str, *words: str) -> str:
        return old_tool("2.8", name, "--zookeeper", nodes.connect, *words)

    def described() -> str:
        return nodes.ottla("topic", "describe", "old").stdout

    tool(
        TOPICS,
        "--create",
        "--topic",
        "old",
        "--partitions",
        "1",
        "--replication-factor",
        "2",
        "--config",
        "retention.ms=5000",
    )
    nodes.await_that(lambda: "retention.ms  5000" in described(), "topic")
    tool(TOPICS, "--alter", "--topic", "old", "--partitions", "2")
    nodes.await_that(lambda: "2 partitions" in described(), "second partition")
    tool(
        CONFIGS, "--alter", "--entity-type", "topics", "--entity-name", "old", "--add-config", "max.message.bytes=4242"
    )
    tool(
        CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "old", "--add-config", "producer_byte_rate=1000"
    )
    nodes.await_that(lambda: "4242" in described() and "old" in nodes.ottla("quota", "list").stdout, "settings")
    leader, replicas = _led(tool(TOPICS, "--describe", "--topic", "old"))
    assert leader == replicas[0] and len(replicas) == 2
    moved = [({1, 2, 3} - {*replicas}).pop(), leader]
    (tmp_path / "move").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "old", "partition": 0, "replicas": moved}]})
    )
    tool(MOVES, "--execute", "--reassignment-json-file", str(tmp_path / "move"))
    nodes.await_that(
        lambda: "is complete" in tool(MOVES, "--verify", "--reassignment-json-file", str(tmp_path / "move")), "move"
    )
    (tmp_path / "elect").write_text(json.dumps({"partitions": [{"topic": "old", "partition": 0}]}))
    tool(ELECTIONS, "--path-to-json-file", str(tmp_path / "elect"))
    nodes.await_that(
        lambda: _led(tool(TOPICS, "--describe", "--topic", "old")) == (moved[0], moved), "preferred leader"
    )
    tool(TOPICS, "--delete", "--topic", "old")
    nodes.await_that(lambda: "old" not in tool(TOPICS, "--list").split(), "deletion")


def _led(described: str) -> tuple[int, list[int]]:
    """Leader and replicas of partition 0, as `kafka-topics --describe` prints them."""
    found = re.search(r"Partition: 0\s+Leader: (-?\d+)\s+Replicas: ([\d,]+)", described)
    assert found is not None, described
    return int(found[1]), [int(each) for each in found[2].split(",")]


def test_nothing_acknowledged_is_lost(nodes: NodesInZooKeeper, tmp_path: Path) -> None:
    assert nodes.ottla("topic", "create", "checked", "--partitions", str(PARTITIONS)).returncode == 0
    with open(tmp_path / "check.log", "wb") as log:
        command = [*OTTLA, "check", "--topic", "checked", "--seconds", str(CHECK_S), "--rate", "200"]
        check = subprocess.Popen([*command, "-b", nodes.bootstrap], stdout=log, stderr=log)
        try:
            wait_written(nodes.bootstrap, ["checked"])
            controller = nodes.controller()
            nodes.kill(controller)
            assert nodes.await_that(lambda: (now := nodes.controller()) != controller and now, "other controller")
            nodes.start(controller)
            nodes.await_whole()
            server = nodes.ensemble.peers[nodes.ensemble.wait_leader()]
            server.kill()
            server.start()
            nodes.await_whole()
            for peer in nodes.ensemble.peers.values():
                peer.kill()
            nodes.await_that(lambda: nodes.health(1)["status"] == "degraded", "word of the lost ensemble")
            assert "ZooKeeper cannot be reached" in nodes.health(1)["cut_off"]
            assert nodes.ottla("produce", "kept", "while nobody decides").returncode == 0
            for peer in nodes.ensemble.peers.values():
                peer.launch()
            for peer in nodes.ensemble.peers.values():
                peer.wait_ready()
            nodes.await_that(lambda: nodes.health(1)["status"] == "healthy", "ensemble")
            nodes.await_whole()
            assert check.wait(CHECK_S + 120) == 0, (tmp_path / "check.log").read_text()[-3000:]
        finally:
            check.kill()
            check.wait()
    assert nodes.ottla("topic", "create", "afterwards").returncode == 0


def test_the_tree_and_all_metadata_are_the_same_at_the_end(nodes: NodesInZooKeeper) -> None:
    """After what the tests before have done, whichever of them ran. What only this finds: a change that a real ensemble
    has in another version, or another order, than the copies that brokers follow."""
    nodes.await_whole()

    async def read_ensemble() -> dict[str, Znode]:
        async with ZooKeeper(SystemNetwork(), nodes.connect, random=Random(1)) as client:
            return await read_tree(client)

    def compared() -> list[str]:
        tree = asyncio.run(read_ensemble())
        cluster_id = json.loads(tree["/cluster/id"].data)["id"]
        images = [load_image(OsFileSystem(), str(nodes.directory / f"data-{each}"), cluster_id) for each in nodes.held]
        return [line for each in images for line in differences(tree, each.image)]

    found: list[str] = []

    def none_differs() -> bool:
        try:
            found[:] = compared()
        except ConnectionLossError as error:
            found[:] = [str(error), *(peer.last_printed() for peer in nodes.ensemble.peers.values())]
        return not found

    try:
        nodes.await_that(none_differs, "agreement")
    except AssertionError:
        raise AssertionError(found[:5]) from None
