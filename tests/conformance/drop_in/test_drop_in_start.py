"""`ottla server start` on what operators have: Kafka's files, directories that it cannot serve, ports taken."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol.internal.quorum_records import QuorumStateFile, encode_quorum_state
from peers.kafka import free_port
from tests.conformance.operations.operations import DEADLINE_S, Client
from tests.node import NodeProcess

EXAMPLE = """\
# The names and the order of config/server.properties of Apache Kafka 4.3.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:{port},CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

GROWN = """\
process.roles = broker, controller
node.id: 7
! settings that came and went over the years
controller.quorum.voters=7@127.0.0.1:9093
controller.listener.names=CTRL
listeners=INTERNAL://127.0.0.1:{port},CTRL://127.0.0.1:9093
listener.security.protocol.map=INTERNAL:PLAINTEXT,CTRL:PLAINTEXT
inter.broker.listener.name=INTERNAL
listener.name.internal.connections.max.reauth.ms=0
log.dirs={data}/a, \\
  {data}/b
metadata.log.dir={data}/meta
zookeeper.connection.timeout.ms=18000
inter.broker.protocol.version=3.9
log.message.format.version=3.0-IV1
offsets.topic.replication.factor=1
metric.reporters=com.example.Reporter
confluent.support.metrics.enable=false
super.users=User:admin
ssl.keystore.location=/etc/kafka/keystore.jks
ssl.keystore.password=changeit
auto.create.topics.enable=false
"""
"""Settings of an operator who has run Kafka for a while."""


def start(tmp_path: Path, text: str) -> tuple[NodeProcess, Path]:
    port, file = free_port(), tmp_path / "server.properties"
    file.write_text(text.format(port=port, data=tmp_path / "data"))
    return NodeProcess(tmp_path / "data", config=file, port=port), file


def complaint(*arguments: str, status: int = 2) -> str:
    """The error of a node that does not start."""
    ended = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "server", "start", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")},
    )
    assert ended.returncode == status, ended
    assert ended.stderr.startswith("ottla: ") and "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr


def without_effect(node: NodeProcess) -> list[str]:
    """The names in the one line that says so."""
    lines = [line for line in node.output.read_text().splitlines() if "has no effect in this version" in line]
    assert len(lines) <= 1
    return lines[0].rpartition(": ")[2].split(", ") if lines else []


def test_kafkas_example_file(tmp_path: Path) -> None:
    """It listens on every interface and asks nobody for a login, which is to be meant."""
    node, _ = start(tmp_path, EXAMPLE)
    node.settings = {"ottla.allow.open.listeners": "true"}
    with node:
        assert Client(node).create("t") == "none"
    named = without_effect(node)
    assert {"num.network.threads", "num.io.threads"} <= set(named)
    assert not {"log.retention.hours", "listeners", "num.partitions", "log.dirs"} & set(named)
    assert named == [name for name in (line.partition("=")[0] for line in EXAMPLE.splitlines()) if name in named]


def test_a_file_that_has_grown_for_years(tmp_path: Path) -> None:
    node, _ = start(tmp_path, GROWN)
    with node:
        assert Client(node).create("t", 4) == "none"
    assert {each.name for each in (tmp_path / "data").iterdir() if each.is_dir()} == {"a", "b", "meta"}
    assert (tmp_path / "data" / "meta" / "__cluster_metadata-0").is_dir()
    assert {
        "zookeeper.connection.timeout.ms",
        "metric.reporters",
        "inter.broker.protocol.version",
        "log.message.format.version",
        "confluent.support.metrics.enable",
        "super.users",
    } <= set(without_effect(node))
    assert "changeit" not in node.output.read_text()


def test_a_file_without_superfluous_settings_is_taken_in_silence(tmp_path: Path) -> None:
    node, _ = start(tmp_path, "log.dirs={data}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nnum.partitions=3\n")
    with node:
        pass
    assert without_effect(node) == []


HOLES = {
    "listeners=PLAINTEXT://:9092": "allow it: --set ottla.allow.open.listeners=true\n",
    "authorizer.class.name=org.example.Rules": "the only authorizer is Kafka's own: set it to org.apache",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=admin":
        "super.users contains admin: expected principals such as User:admin",
    "create.topic.policy.class.name=com.example.Policy": "does not support policies",
    "alter.config.policy.class.name=com.example.Policy": "--set alter.config.policy.class.name=\n",
    "remote.log.storage.system.enable=true": "--set remote.log.storage.system.enable=false\n",
    "zookeeper.connect=localhost:2181\nbroker.id.generation.enable=false": "broker.id is missing: give each broker",
    "zookeeper.connect=localhost:2181\nbroker.id=1001": "above reserved.broker.max.id=1000 are given by the cluster",
}  # fmt: skip


OF_SECURITY = {
    "listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9094": "listener SSL: ssl.keystore.location is missing",
    "listeners=IN://127.0.0.1:9092\nlistener.security.protocol.map=IN:SASL_PLAINTEXT":
        "set listener.name.in.sasl.enabled.mechanisms to some of PLAIN,",
    "zookeeper.connect=localhost:2181\nbroker.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\nzookeeper.set.acl=true":
        "zookeeper.set.acl is true, but this broker has no login for the ensemble",
    "zookeeper.connect=localhost:2181\nbroker.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
    "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=nowhere.pem": "nowhere.pem cannot be read",
}  # fmt: skip
"""What would let somebody in who should not be: found when the node is made, before anything is on disk."""


@pytest.mark.parametrize("lines", [*HOLES, *OF_SECURITY])
def test_a_file_that_asks_for_protection_is_refused(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\n{lines}\n")
    wanted = HOLES.get(lines) or OF_SECURITY[lines]
    assert wanted in complaint("--config", str(file), status=2 if lines in HOLES else 1)
    assert not (tmp_path / "data").exists()


def test_protection_can_be_given_up_by_name(tmp_path: Path) -> None:
    node, _ = start(
        tmp_path, "log.dirs={data}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nauthorizer.class.name=org.example.Rules\n"
    )
    node.settings = {"authorizer.class.name": ""}
    with node:
        assert Client(node).create("t") == "none"
    assert without_effect(node) == []


def test_mistakes_are_named_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnum.partitions=1\nlog.retention.hour=1\n\nlog.dirs=a,\\\n  b\nnum.io.threads=none\n")
    said = complaint("--config", str(file))
    assert f"{file} line 3: unknown setting log.retention.hour: " in said
    assert "did you mean log.retention.hours" in said
    assert f"{file} line 7: setting num.io.threads=none is refused" in said


# What the command line says twice, or what is not a directory.


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_two_places_for_data_are_refused(tmp_path: Path, name: str) -> None:
    said = complaint(str(tmp_path / "one"), "--set", f"{name}={tmp_path / 'two'}")
    assert f"{tmp_path / 'one'} and --set {name}={tmp_path / 'two'} contradict each other" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_a_directory_beside_others_of_the_file_is_refused(tmp_path: Path, name: str) -> None:
    file, place = tmp_path / "server.properties", tmp_path / "data"
    file.write_text(f"node.id=1\n{name}={place}\n")
    said = complaint(str(tmp_path / "other"), "--config", str(file))
    assert f"the directory {tmp_path / 'other'} and {name}={place} of {file} contradict each other" in said
    assert list(tmp_path.iterdir()) == [file]
    # The same directory is no contradiction, nor is another that --set puts in its place by name.
    for arguments in ([f"{place}/"], ["--set", f"log.dirs={tmp_path / 'other'}"]):
        said = complaint(*arguments, "--config", str(file), "--set", "num.io.threads=none")
        assert "setting num.io.threads=none is refused" in said


def test_kafkas_files_of_a_controller_and_a_broker_alone(tmp_path: Path) -> None:
    """What controller.properties and broker.properties of Kafka say, at free ports."""
    controller, broker = (NodeProcess(tmp_path / role, config=tmp_path / f"{role}.properties") for role in ROLES)
    quorum = f"controller.quorum.bootstrap.servers=localhost:{controller.port}\ncontroller.listener.names=CONTROLLER\n"
    for node_id, (node, role) in enumerate(zip((controller, broker), ROLES, strict=True), start=1):
        assert node.config is not None
        listeners = ROLES[role].replace("PORT", str(node.port))
        node.config.write_text(f"process.roles={role}\nnode.id={node_id}\n{quorum}{listeners}log.dirs={node.data}\n")
        node.settings = {"ottla.allow.open.listeners": "true"}
    with controller, broker:
        subprocess.run(["kcat", "-b", broker.bootstrap, "-P", "-t", "t"], input=b"a\n", timeout=60, check=True)


ROLES = {
    "controller": "listeners=CONTROLLER://:PORT\nadvertised.listeners=CONTROLLER://localhost:PORT\n",
    "broker": "listeners=PLAINTEXT://localhost:PORT\ninter.broker.listener.name=PLAINTEXT\n"
    "advertised.listeners=PLAINTEXT://localhost:PORT\n",
}


def test_two_listeners_are_refused() -> None:
    said = complaint("--listen", "127.0.0.1:1", "--set", "listeners=PLAINTEXT://127.0.0.1:2")
    assert "--listen 127.0.0.1:1 and --set listeners=PLAINTEXT://127.0.0.1:2 contradict each other" in said


@pytest.mark.parametrize("below", ["", "data", "deep/data"])
def test_a_file_in_place_of_a_directory(tmp_path: Path, below: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\n")
    said = complaint(str(file / below), "--listen", "127.0.0.1:0", status=1)
    assert said == f"ottla: {file} is not a directory: give an existing or a new directory\n"


def test_a_port_that_is_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = complaint(str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}", status=1)
        assert said.startswith(f"ottla: cannot listen on 127.0.0.1:{port}: address already in use; stop what uses")
        assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_leaves_a_directory_as_it_was(fresh_node: NodeProcess) -> None:
    fresh_node.stop()
    before = files(fresh_node.data)
    with socket.create_server(("127.0.0.1", fresh_node.port)):
        complaint(str(fresh_node.data), "--listen", fresh_node.bootstrap, status=1)
    assert files(fresh_node.data) == before


# Directories that this version cannot serve.


def files(directory: Path) -> dict[str, bytes]:
    """All of a directory but for what locks it."""
    return {
        str(each.relative_to(directory)): each.read_bytes()
        for each in directory.rglob("*")
        if each.is_file() and each.name != ".lock"
    }


def _of_zookeeper(data: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")  # beside it the version may be 0: Kafka has taken the broker to KRaft
    (data / "meta.properties").write_text("#\nversion=0\nbroker.id=1\ncluster.id=Zm9vYmFyYmF6cXV1eHh5eg\n")


def _of_another_node(data: Path) -> None:
    file = data / "meta.properties"
    file.write_text(file.read_text().replace("node.id=1", "node.id=4"))


def _of_a_quorum(data: Path) -> None:
    state = QuorumStateFile(1, 9, voters=(1, 2, 3), data_version=0)
    (data / "__cluster_metadata-0" / "quorum-state").write_bytes(encode_quorum_state(state))


def _without_identity(data: Path) -> None:
    (data / "meta.properties").unlink()


def _without_metadata(data: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")


REFUSED: dict[Callable[[Path], None], str] = {
    _of_zookeeper: "import the cluster with `ottla migrate zookeeper`",
    _of_another_node: "belongs to node 4, not to node 1: set node.id=4",
    _of_a_quorum: "belongs to a quorum with controllers 2, 3, but the settings name neither them nor a listener",
    _without_identity: "has metadata but no meta.properties: restore that file",
    _without_metadata: "has logs of topics, but",
}


@pytest.mark.parametrize("spoil", REFUSED, ids=lambda each: each.__name__.strip("_"))
def test_a_directory_that_cannot_be_served_stays_as_it_was(
    fresh_node: NodeProcess, spoil: Callable[[Path], None]
) -> None:
    assert Client(fresh_node).create("t") == "none"
    fresh_node.stop()
    spoil(fresh_node.data)
    before = files(fresh_node.data)
    said = complaint(str(fresh_node.data), "--listen", "127.0.0.1:0", status=1)
    assert REFUSED[spoil] in said
    assert said.count("\n") == 1
    assert files(fresh_node.data) == before


def test_a_metadata_log_elsewhere_is_named(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with NodeProcess(tmp_path / "data", {"log.dirs": f"{first},{second}"}):
        pass
    said = complaint("--set", f"log.dirs={second},{first}", "--listen", "127.0.0.1:0", status=1)
    assert f"the metadata log is in {first} and not in {second}: set metadata.log.dir={first}" in said
