"""`ottla server start --secure` and `ottla cluster up --secure`: who gets in, with what, and where the password is."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

from ottla import arrow
from ottla.cli.security import secured
from ottla.client.properties import read_file
from ottla.client.security_settings import parse_security
from ottla.testing.process import reserve
from tests.conformance.cli.test_cluster_up import Up
from tests.conformance.operations.operations import eventually
from tests.conformance.shell import Shell

ROOT = Path(__file__).resolve().parents[3]


class SecuredNode:
    """A node with its data in DIRECTORY/data and its files for clients beside it."""

    http = registry = ""
    """URLs."""

    def __init__(self, directory: Path, *more: str) -> None:
        self.data, self.root = directory / "data", directory / "data-security"
        self.held = reserve(0)
        self.bootstrap = f"127.0.0.1:{self.held.getsockname()[1]}"
        self.more = more
        self.output = directory / "output"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> Path:
        return self.root / secured.CLIENT

    @property
    def password(self) -> str:
        login = parse_security(read_file(self.client)).login
        assert login is not None
        return login.password.reveal()

    def command(self) -> list[str]:
        place = [str(self.data), "--secure", "--listen", self.bootstrap, *self.more]
        return [sys.executable, "-m", "ottla.cli.main", "server", "start", *place]

    def __enter__(self) -> SecuredNode:
        with open(self.output, "ab") as out:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_CLIENT")}
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=out, env=environment)
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, b"")
        assert any(b"listening on" in line for line in lines), self.output.read_text()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None and self.process.stdout is not None
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.process.stdout.close()
        self.held.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    held = [reserve(0), reserve(0)]
    http, registry = (f"127.0.0.1:{each.getsockname()[1]}" for each in held)
    with SecuredNode(tmp_path_factory.mktemp("secured"), "--http", http, "--registry", registry) as running:
        running.http, running.registry = f"https://{http}", f"https://{registry}"
        yield running
    for each in held:
        each.close()


def ottla(*arguments: str, file: Path | None, text: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with the file in the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    if file is not None:
        environment["OTTLA_CLIENT_CONFIG"] = str(file)
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    return subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, timeout=120, check=False
    )


def by_librdkafka(node: SecuredNode) -> dict[str, Any]:
    return dict(read_file(node.root / secured.LIBRDKAFKA))


def test_our_clients_and_librdkafka_with_the_files_that_were_written(node: SecuredNode) -> None:
    assert ottla("topic", "create", "t", file=node.client).stdout == "t created\n"
    assert "1 record" in ottla("produce", "t", file=node.client, text="one\n").stdout
    producer = Producer(by_librdkafka(node))
    producer.produce("t", b"two")
    assert producer.flush(30) == 0
    assert ottla("consume", "t", file=node.client).stdout == "one\ntwo\n"
    consumer = Consumer({**by_librdkafka(node), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found = [consumer.poll(30), consumer.poll(30)]
    assert [each.value() for each in found if each is not None] == [b"one", b"two"]
    consumer.close()
    security = parse_security(read_file(node.client))
    table = arrow.read("t", node.bootstrap, columns=["value"], security=security).read_all()
    assert table.column("value").to_pylist() == [b"one", b"two"]


def test_the_tools_of_kafka_take_the_file(node: SecuredNode, shell: Shell) -> None:
    common = ["--bootstrap-server", node.bootstrap, "--command-config", str(node.client)]
    shell.run("TopicCommand", *common, "--create", "--topic", "by-java")
    assert "by-java" in shell.run("TopicCommand", *common, "--list").lines()


def test_who_has_no_password_gets_nothing(node: SecuredNode, tmp_path: Path) -> None:
    refused = ottla("topic", "list", "-b", node.bootstrap, file=None)
    assert refused.returncode == 3 and "security.protocol=SSL" in refused.stderr
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(node.client.read_text().replace(node.password, "not it"))
    refused = ottla("topic", "list", file=wrong)
    assert refused.returncode == 1 and "refused the login as admin" in refused.stderr
    untrusted = tmp_path / "untrusted.properties"
    lines = node.client.read_text().splitlines(keepends=True)
    untrusted.write_text("".join(line for line in lines if "truststore" not in line))
    refused = ottla("topic", "list", file=untrusted)
    assert refused.returncode == 1 and "is not trusted" in refused.stderr
    anonymous = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0, "socket.timeout.ms": 1000})
    with pytest.raises(Exception, match="_TRANSPORT"):
        anonymous.list_topics(timeout=2)


def test_a_user_may_do_what_an_acl_says(node: SecuredNode, tmp_path: Path) -> None:
    made = ottla("user", "create", "reader", "--generate", "--json", file=node.client)
    assert made.returncode == 0, made.stderr
    (tmp_path / "password").write_text("a password of my own\n")
    assert (
        ottla("user", "create", "writer", "--password-file", str(tmp_path / "password"), file=node.client).returncode
        == 0
    )
    secured_writer = tmp_path / "writer.properties"
    text = node.client.read_text().replace(node.password, "a password of my own").replace('"admin"', '"writer"')
    secured_writer.write_text(text.replace("SCRAM-SHA-256", "SCRAM-SHA-512"))
    ottla("topic", "create", "orders", file=node.client)
    refused = ottla("produce", "orders", file=secured_writer, text="x\n")
    assert refused.returncode != 0 and "ottla acl explain" in refused.stderr, refused.stderr
    assert ottla("acl", "add", "writer", "write", "topic:orders", file=node.client).returncode == 0
    assert ottla("produce", "orders", file=secured_writer, text="x\n").returncode == 0
    hidden = ottla("consume", "orders", file=secured_writer)
    assert hidden.returncode != 0 and "x" not in hidden.stdout


def test_a_mirror_between_two_secured_clusters(node: SecuredNode, tmp_path: Path) -> None:
    """Each side has a CA and a password of its own."""
    from ottla.mirror.mirror import Mirror, Route

    with SecuredNode(tmp_path) as other:
        ottla("topic", "create", "mirrored", file=other.client)
        ottla("produce", "mirrored", file=other.client, text="a\nb\n")
        route = Route(
            "source",
            other.bootstrap,
            "here",
            node.bootstrap,
            topics="mirrored",
            source_security=parse_security(read_file(other.client)),
            destination_security=parse_security(read_file(node.client)),
        )
        Mirror(route).step()
        assert ottla("consume", "mirrored", file=node.client).stdout == "a\nb\n"
        asked = ["mirror", "status", "source", "--name", "here", "--from", other.bootstrap, "--json"]
        status = ottla(*asked, "--from-config", str(other.client), file=node.client)
        assert status.returncode == 0 and '"lag_records": 0' in status.stdout, status.stdout + status.stderr
        refused = ottla(*asked, file=node.client)  # nothing of this cluster's is sent to the other
        assert refused.returncode == 3 and other.password not in refused.stderr


def test_commands_that_stay(node: SecuredNode, tmp_path: Path) -> None:
    """Lines of files, a check under load."""
    lines = tmp_path / "lines.log"
    lines.write_text("one\ntwo\n")
    state = str(tmp_path / "state")
    ottla("topic", "create", "lines", file=node.client)
    tailed = ottla("tail", str(lines), "--to", "lines", "--once", "--state", state, file=node.client)
    assert tailed.returncode == 0, tailed.stderr
    assert ottla("consume", "lines", file=node.client).stdout == "one\ntwo\n"
    checked = ottla("check", "--seconds", "1", "--rate", "100", "--json", file=node.client)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_http_and_the_registry_are_secured_too(node: SecuredNode, tmp_path: Path) -> None:
    """The files of clients do for them: https by the same authority, and the same users."""
    assert ottla("server", "health", "--http", node.http, file=None).stdout == "healthy\n"
    known = ottla("server", "health", "--http", node.http, "--json", file=node.client)
    assert '"offline_directories"' in known.stdout, known.stderr
    trusted = ssl.create_default_context(cafile=node.root / secured.SECURITY / "ca.pem")
    with httpx.Client(verify=trusted) as client:
        assert client.get(f"{node.http}/metrics").status_code == 401
        assert b"ottla_ready" in client.get(f"{node.http}/metrics", auth=("admin", node.password)).content
        assert eventually(lambda: _status(client, f"{node.registry}/subjects")) == 401
    schema = tmp_path / "s.avsc"
    schema.write_text('{"type":"record","name":"T","fields":[{"name":"a","type":"int"}]}')
    made = ottla("schema", "register", "t-value", str(schema), "--registry", node.registry, file=node.client)
    assert made.returncode == 0, made.stderr
    listed = ottla("schema", "list", "--registry", node.registry, "--config", str(node.client), file=None)
    assert "t-value" in listed.stdout, listed.stderr
    refused = ottla("schema", "list", "--registry", node.registry, file=None)
    assert refused.returncode == 1 and "is not trusted" in refused.stderr
    by_confluent = SchemaRegistryClient(
        {
            "url": node.registry,
            "ssl.ca.location": str(node.root / secured.SECURITY / "ca.pem"),
            "basic.auth.user.info": f"admin:{node.password}",
        }
    )
    assert by_confluent.get_latest_version("t-value").schema_id == 1


def _status(client: httpx.Client, url: str) -> int | None:
    """None while nobody answers: the registry starts after the node."""
    try:
        return client.get(url).status_code
    except httpx.TransportError:
        return None


def test_the_password_is_in_the_files_of_clients_alone(node: SecuredNode) -> None:
    """Nor in what the node prints, nor among arguments; the records have it salted and hashed."""
    needle = node.password.encode()
    found = {
        str(file.relative_to(node.root.parent))
        for file in node.root.parent.rglob("*")
        if file.is_file() and needle in file.read_bytes()
    }
    assert found == {f"data-security/{name}" for name in (secured.CLIENT, secured.LIBRDKAFKA, secured.SPARK)}
    assert node.process is not None
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert needle not in file.read_bytes(), file
        except OSError:
            continue
    for command in (("config", "list", "--broker", "1"), ("log", "dump", str(node.data / "__cluster_metadata-0"))):
        printed = ottla(*command, file=node.client)
        assert node.password not in printed.stdout + printed.stderr


def test_the_next_start_has_the_same_password(tmp_path: Path) -> None:
    first = SecuredNode(tmp_path)
    with first:
        before = first.password
    with SecuredNode(tmp_path) as second:
        assert second.bootstrap != first.bootstrap and read_file(second.client)["bootstrap.servers"] == second.bootstrap
        assert ottla("topic", "list", file=second.client).returncode == 0
        assert second.password == before


def test_data_without_security_is_not_secured_by_the_way(tmp_path: Path) -> None:
    from tests.node import NodeProcess

    with NodeProcess(tmp_path / "data"):
        pass
    refused = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "server", "start", str(tmp_path / "data"), "--secure"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2 and "data of a node without security" in refused.stderr
    assert not (tmp_path / "data-security").exists()


def test_a_cluster_of_three(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with Up("3", str(directory), "--port", "0", "--secure") as up:
        bootstrap = up.bootstrap()
        assert up.line() == f"secured: eval $(ottla security env {directory})"
        given = dict(read_file(directory / secured.LIBRDKAFKA))
        assert given["bootstrap.servers"] == bootstrap
        errors: list[KafkaError | None] = []
        producer = Producer({**given, "acks": "all"})
        for number in range(100):
            producer.produce("t", b"%d" % number, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0 and errors == [None] * 100
        described = ottla("cluster", "describe", "--json", file=directory / secured.CLIENT)
        assert described.returncode == 0, described.stderr
        node_joins(directory, bootstrap)
        renewed = ottla("cert", "renew", str(directory), file=None)
        assert renewed.stdout.count("valid until") == 4
        assert up.end(signal.SIGINT) == 0
    assert not list(directory.glob("node-*/pid"))


def node_joins(directory: Path, bootstrap: str) -> None:
    """A fourth node gets a certificate of the cluster's authority, and an id that the controllers gave it."""
    client = directory / secured.CLIENT
    with Up(str(directory / "node-4"), "-b", bootstrap, command=("cluster", "add")) as added:
        said = [added.line(), added.line()]
        assert said[0].startswith("ottla: node 4 in ") and said[1].startswith("ottla: node 4 has joined"), (
            said,
            added.rest(),
        )
        assert "--config" in added.line()
        settings = read_file(directory / "node-4" / "server.properties")
        assert "PLAINTEXT" not in settings["listeners"] and settings["ssl.keystore.location"].endswith(
            "node-4/node.pem"
        )
        taken = ottla("cluster", "add", str(directory / "other"), "--node-id", "2", file=client)
        assert taken.returncode == 2 and "belongs to the cluster already" in taken.stderr
        assert not (directory / "other").exists()
        made = ottla("topic", "create", "on-four", "-r", "4", file=client)
        assert made.returncode == 0, made.stderr
        assert ottla("produce", "on-four", file=client, text="x\n").returncode == 0
        assert added.end() == 0
