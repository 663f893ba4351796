"""Kafka's tools for controllers on quorums of Ottla: StorageTool, MetadataQuorumCommand, FeatureCommand."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.model import uuid_to_base64
from peers.kafka import KafkaPeer, start_fast
from tests.cluster.admin import create, quorum, until
from tests.cluster.processes import ONE_REPLICA, Voter, identity, ottla_quorum, start_together
from tests.cluster.quorum.test_dynamic_quorum import JOINS, QUICK, observers, ottla, ports, voters
from tests.conformance.shell import Shell
from tests.node import FOR_EVER, NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

STORAGE = "kafka.tools.StorageTool"
QUORUM = "MetadataQuorumCommand"


def node(directory: Path, number: int, controllers: str = "") -> Voter:
    """A node with a settings file of Kafka's, `directory`/server.properties; not formatted, not started."""
    found = Voter(directory / "data", is_broker=True)
    found.settings = {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.listener.names": "CONTROLLER",
        "listeners": found.listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": controllers or found.controller,
        **ONE_REPLICA,
        **FOR_EVER,
        **QUICK,
    }
    directory.mkdir()
    lines = {**found.settings, "log.dirs": str(found.data)}
    properties_of(found).write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return found


def properties_of(found: NodeProcess) -> Path:
    return found.data.parent / "server.properties"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Voter]]:
    one = node(tmp_path / "one", 1)
    found = [one, node(tmp_path / "two", 2, one.controller)]
    yield found
    for each in found:
        if each.process is not None:
            each.kill()


def test_ottla_starts_on_what_kafka_formatted_and_kafkas_tools_change_its_voters(
    nodes: list[Voter], shell: Shell
) -> None:
    one, two = nodes
    cluster_id = shell.run(STORAGE, "random-uuid").out.strip().splitlines()[-1]
    first, second = (str(properties_of(each)) for each in nodes)
    shell.run(STORAGE, "format", "-t", cluster_id, "-c", first, "--standalone")
    shell.run(STORAGE, "format", "-t", cluster_id, "-c", second, "--no-initial-controllers")
    one.start()
    two.start()
    directories = [identity(each.data).directory_id or "" for each in nodes]
    until(lambda: observers(one), lambda found: 2 in found)
    address = ("--bootstrap-server", one.bootstrap)
    status = shell.run(QUORUM, *address, "describe", "--status").out
    assert re.search(rf"ClusterId:\s+{cluster_id}", status), status
    assert re.search(r"LeaderId:\s+1\b", status), status
    for place in (address, ("--bootstrap-controller", one.controller)):
        shell.run(QUORUM, *place, "--command-config", second, "add-controller")
        assert set(voters(one)) == {1, 2}
        rows = shell.run(QUORUM, *place, "describe", "--replication").out
        found = dict(re.findall(r"^\d+\s+(\S{22})\s.*?(Leader|Follower|Observer)\s*$", rows, re.M))
        assert found == dict(zip(directories, ("Leader", "Follower"), strict=True)), rows
        again = shell.run(QUORUM, *place, "--command-config", second, "add-controller", check=False)
        assert again.status
        assert "DuplicateVoterException" in again.out + again.err
        shell.run(
            QUORUM, *place, "remove-controller", "--controller-id", "2", "--controller-directory-id", directories[1]
        )
        assert set(voters(one)) == {1}
    assert create(one.bootstrap, "after") == 0


def test_kafka_knows_what_ottla_formatted_and_starts_on_it(tmp_path: Path, shell: Shell) -> None:
    kafka = KafkaPeer(
        tmp_path / "kafka",
        heap="384m",
        release="4.4",
        flags=start_fast("4.4"),
        settings={"controller.quorum.voters": None},
    )
    kafka.settings["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{kafka.controller_port}"
    path = str(kafka.write_properties())
    before = shell.run(STORAGE, "info", "-c", path, check=False)
    assert before.status
    assert "Found problem" in before.out
    ottla("storage", "format", "--standalone", "--config", path, "--cluster-id", kafka.cluster_id)
    info = shell.run(STORAGE, "info", "-c", path, check=False).out
    assert f"cluster.id={kafka.cluster_id}" in info.replace(" ", "").replace(":", "="), info
    assert "directory.id" in info
    directory_id = identity(kafka.data).directory_id
    kafka.start()
    try:
        (row,) = until(lambda: quorum(kafka.bootstrap)["current_voters"], bool)
        assert uuid_to_base64(row["replica_directory_id"]) == directory_id
        assert create(kafka.bootstrap, "kept") == 0
    finally:
        kafka.stop()


def test_kafkas_tool_makes_a_static_quorum_a_dynamic_one(tmp_path: Path, shell: Shell) -> None:
    nodes = ottla_quorum(tmp_path, settings=QUICK, count=2)
    try:
        start_together(nodes)
        address = ("--bootstrap-server", nodes[0].bootstrap)
        upgrade = ("FeatureCommand", *address, "upgrade", "--feature", "kraft.version=1")

        def upgraded() -> str:
            done = shell.run(*upgrade, check=False)
            return done.out + done.err

        until(upgraded, lambda out: "kraft.version was upgraded to 1." in out)
        described = shell.run("FeatureCommand", *address, "describe").out
        assert re.search(r"kraft\.version.*FinalizedVersionLevel: 1\b", described), described
        back = shell.run("FeatureCommand", *address, "downgrade", "--feature", "kraft.version=0", check=False)
        assert back.status
        assert set(ports(nodes[0])) == {1, 2}
    finally:
        for each in nodes:
            if each.process is not None:
                each.kill()


def test_both_know_the_voters_of_an_initial_set(tmp_path: Path, shell: Shell) -> None:
    """Formatted by Kafka for two, one of them; the other by Ottla with the same words."""
    one, two = nodes = [node(tmp_path / name, number) for number, name in enumerate(("one", "two"), 1)]
    ids = [shell.run(STORAGE, "random-uuid").out.strip().splitlines()[-1] for _ in range(3)]
    named = ",".join(f"{n}@{each.controller}:{ids[n]}" for n, each in enumerate(nodes, 1))
    shell.run(STORAGE, "format", "-t", ids[0], "-c", str(properties_of(one)), "--initial-controllers", named)
    ottla(
        "storage", "format", "--config", str(properties_of(two)), "--cluster-id", ids[0], "--initial-controllers", named
    )
    try:
        start_together(nodes)
        assert set(voters(one)) == {1, 2}
        assert [identity(each.data).directory_id for each in nodes] == ids[1:]
    finally:
        for each in nodes:
            if each.process is not None:
                each.kill()


def test_controllers_of_both_kinds_join_each_others_quorums_by_themselves(nodes: list[Voter], tmp_path: Path) -> None:
    """Kafka's joins Ottla's; then Ottla's leader goes, and another one of Ottla's joins Kafka's."""
    one, two = nodes
    ottla("storage", "format", "--standalone", "--config", str(properties_of(one)))
    one.start()
    cluster_id = identity(one.data).cluster_id or ""
    kafka = KafkaPeer(
        tmp_path / "kafka",
        heap="256m",
        release="4.4",
        flags=start_fast("4.4"),
        roles="controller",
        node_id=3,
        cluster_id=cluster_id,
        settings={**JOINS, **QUICK, "controller.quorum.voters": None},
    )
    kafka.settings["controller.quorum.bootstrap.servers"] = one.controller
    kafka.format("--no-initial-controllers")
    try:
        kafka.start()
        until(lambda: set(voters(one)), {1, 3}.__eq__)
        first = identity(one.data).directory_id or ""
        ottla("quorum", "remove", "1", first, "--bootstrap", one.bootstrap)
        until(lambda: quorum(one.bootstrap)["leader_id"], (3).__eq__)
        two.settings |= {**JOINS, "controller.quorum.bootstrap.servers": f"127.0.0.1:{kafka.controller_port}"}
        two.start()
        assert until(lambda: set(voters(two)), {2, 3}.__eq__)
        assert create(two.bootstrap, "after") == 0
    finally:
        for each in (two, one):
            if each.process is not None:
                each.kill()
        kafka.kill()
