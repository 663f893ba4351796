"""Clients of others log in over TLS (SASL_SSL), with the authority's certificate, and not without it.

librdkafka and Java's tools do so in test_secured_node.py.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from peers.kafka import free_port
from tests.certificates import Authority, ssl_settings
from tests.conformance.clients import build
from tests.node import NodeProcess

AUTHORITY, STRANGER = Authority(), Authority("Stranger")
MECHANISM = "SCRAM-SHA-512"
SECRET = "correct horse, battery staple"


class Secured(NodeProcess):
    """Demands a login over TLS at `secured`; the other listener is for the test, which makes the user."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "data")
        self.secured = f"localhost:{free_port()}"
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},SASL_SSL://{self.secured}",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": MECHANISM,
            **ssl_settings(directory, AUTHORITY, AUTHORITY.issue("node")),
        }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("sasl-ssl"))
    with found:
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        made = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), SECRET.encode()
        )
        for future in admin.alter_user_scram_credentials([made]).values():
            future.result(60)
        yield found


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files with the node's authority, and with another."""
    directory = tmp_path_factory.mktemp("authorities")
    files = directory / "ca.pem", directory / "stranger.pem"
    for file, authority in zip(files, (AUTHORITY, STRANGER), strict=True):
        file.write_text(authority.pem)
    return files


def of_python(node: Secured, authority: Path) -> dict[str, Any]:
    return {
        "bootstrap_servers": node.secured,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
        "ssl_context": ssl.create_default_context(cafile=str(authority)),
    }


@pytest.mark.client("kafka-python", "logs in over TLS")
def test_kafka_python(node: Secured, authorities: tuple[Path, Path], topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    trusted, stranger = (of_python(node, each) for each in authorities)
    producer = KafkaProducer(**trusted)
    producer.send(topic, b"x").get(60)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **trusted)
    assert next(consumer).value == b"x"
    consumer.close()
    with pytest.raises(Exception, match=r"(?i)bootstrap|NoBrokers|certificate"):
        KafkaProducer(**stranger, bootstrap_timeout_ms=1500)


@pytest.mark.client("aiokafka", "logs in over TLS")
def test_aiokafka(node: Secured, authorities: tuple[Path, Path], topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError

    trusted, stranger = (of_python(node, each) for each in authorities)

    async def test() -> None:
        async with AIOKafkaProducer(**trusted) as producer:
            await producer.send_and_wait(topic, b"x")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **trusted) as consumer:
            assert (await consumer.getone()).value == b"x"
        wrong = AIOKafkaProducer(**stranger)
        with pytest.raises(KafkaError):
            await wrong.start()
        await wrong.stop()

    asyncio.run(asyncio.wait_for(test(), 120))


@pytest.mark.client("franz-go", "logs in over TLS")
def test_franz_go(node: Secured, authorities: tuple[Path, Path], topic: str) -> None:
    check([str(built("go") / "bin" / "franz-login")], node, authorities, topic)


@pytest.mark.matrix
@pytest.mark.client("kafkajs", "logs in over TLS")
def test_kafkajs(node: Secured, authorities: tuple[Path, Path], topic: str) -> None:
    check(["node", str(built("node") / "kafkajs-login.js")], node, authorities, topic)


def built(language: str) -> Path:
    why = build.missing(language)
    if why is not None:
        pytest.skip(why)
    return build.build(language)


def check(program: Sequence[str], node: Secured, authorities: tuple[Path, Path], topic: str) -> None:
    """A program that prints the record that it wrote: with the right authority and password alone."""
    trusted, stranger = authorities

    def attempt(password: str, authority: Path) -> subprocess.CompletedProcess[str]:
        command = [*program, node.secured, MECHANISM, "alice", password, topic, str(authority)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ})

    done = attempt(SECRET, trusted)
    assert done.stdout == f"by {MECHANISM}\n", done.stderr
    for refused in (attempt("wrong", trusted), attempt(SECRET, stranger)):
        assert refused.returncode == 1 and refused.stderr, refused
