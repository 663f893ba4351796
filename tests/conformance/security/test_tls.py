"""Clients of others over TLS, with certificates of their own: librdkafka and Kafka's console tools, unchanged."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.certificates import Authority, ssl_settings
from tests.conformance.shell import Shell
from tests.node import NodeProcess

AUTHORITY = Authority()
MIDDLE = Authority("Middle", AUTHORITY)
PASSWORD = "geheim"
REPORTED_S = 60
"""By then the client has said why."""


class SecuredNode(NodeProcess):
    """Listens at `secured` over TLS, and demands certificates there."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "data")
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
        self.secured = f"localhost:{port}"
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},SSL://{self.secured}",
            **ssl_settings(directory, AUTHORITY, MIDDLE.issue("node"), client_auth="required"),
        }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    found = SecuredNode(tmp_path_factory.mktemp("tls"))
    with found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a client needs, in every form."""
    directory = tmp_path_factory.mktemp("client")
    alice = MIDDLE.issue("alice", hosts=())
    (directory / "ca.pem").write_text(AUTHORITY.pem)
    (directory / "alice.key").write_text(alice.key_pem(PASSWORD))
    (directory / "alice.pem").write_text(alice.chain_pem)
    (directory / "alice.p12").write_bytes(alice.pkcs12(PASSWORD))
    return directory


def of_librdkafka(node: SecuredNode, files: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": node.secured,
        "security.protocol": "ssl",
        "ssl.ca.location": str(files / "ca.pem"),
        "ssl.certificate.location": str(files / "alice.pem"),
        "ssl.key.location": str(files / "alice.key"),
        "ssl.key.password": PASSWORD,
    }


@pytest.mark.client("confluent-kafka", "produces and reads over TLS with a client certificate")
def test_librdkafka(node: SecuredNode, files: Path) -> None:
    config = of_librdkafka(node, files)
    values = [b"%d" % number * 5000 for number in range(300)]
    producer = Producer({**config, "linger.ms": 5})
    for each in values:
        producer.produce("librdkafka", each)
    assert producer.flush(60) == 0
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    found: list[bytes | None] = []
    while len(found) < len(values):
        found += [each.value() for each in consumer.consume(len(values) - len(found), 30) if not each.error()]
    consumer.close()
    assert found == values


@pytest.mark.client("confluent-kafka", "is told why its certificate is refused")
def test_librdkafka_with_a_bad_certificate(node: SecuredNode, files: Path) -> None:
    stranger = Authority("Elsewhere").issue("mallory", hosts=())
    key, chain = files / "mallory.key", files / "mallory.pem"
    key.write_text(stranger.key_pem())
    chain.write_text(stranger.chain_pem)
    errors: list[KafkaError] = []
    own = {"ssl.certificate.location": str(chain), "ssl.key.location": str(key)}
    admin = AdminClient({**of_librdkafka(node, files), **own, "error_cb": errors.append, "socket.timeout.ms": 2000})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    end_s = time.monotonic() + REPORTED_S
    while not any("alert" in each.str() for each in errors):
        assert time.monotonic() < end_s, errors
        admin.poll(0.2)
    assert "a TLS handshake failed" in node.output.read_text()


@pytest.mark.client("ConsoleProducer", "over TLS, with a PKCS12 file")
@pytest.mark.client("ConsoleConsumer", "over TLS, with a PKCS12 file")
def test_console_tools(node: SecuredNode, files: Path, shell: Shell) -> None:
    config = files / "client.properties"
    lines = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files / "ca.pem",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": files / "alice.p12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    texts = [f"line {number} " + "x" * number for number in range(300)]
    bootstrap = ("--bootstrap-server", node.secured, "--topic", "console")
    shell.run(
        "ConsoleProducer", *bootstrap, "--command-config", str(config), text="".join(f"{each}\n" for each in texts)
    )
    read = shell.run(
        "consumer.ConsoleConsumer",
        *bootstrap,
        "--command-config",
        str(config),
        "--from-beginning",
        "--max-messages",
        "300",
        "--timeout-ms",
        "60000",
    )
    assert read.lines() == texts
