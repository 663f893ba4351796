"""Clients of others log in by GSSAPI, with tickets of a real KDC, at a node whose own key is in a keytab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from ottla.client.librdkafka import settings_of
from ottla.client.security import SecurityFailure
from ottla.client.security_settings import parse_security
from ottla.security.sasl.jaas import KERBEROS_MODULE
from peers.kafka import START_FAST, java
from tests.kerberos import REALM, NoKerberos, Realm, package
from tests.node import NodeProcess

SERVICE = "kafka/localhost"


class KerberosNode(NodeProcess):
    """A node that checks tickets."""

    realm: Realm

    def environment(self) -> dict[str, str]:
        found = super().environment() | {"KRB5_CONFIG": str(self.realm.configuration)}
        return found | {"PYTHONPATH": package()} if package() else found


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    try:
        package()
        made = Realm(tmp_path_factory.mktemp("realm"))
    except NoKerberos as error:
        pytest.skip(f"no Kerberos here: {error}")
    made.add(SERVICE, "alice")
    yield made
    made.close()


def jaas(keytab: str, principal: str) -> str:
    return f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}";'


@pytest.fixture(scope="module")
def node(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = KerberosNode(tmp_path_factory.mktemp("kerberos") / "data")
    node.realm = realm
    node.bootstrap = f"localhost:{node.port}"
    node.settings |= {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{node.port}",
        "advertised.listeners": f"SASL_PLAINTEXT://{node.bootstrap}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas(realm.keytab(SERVICE), SERVICE),
        "ottla.log.level": "DEBUG",
    }
    with node:
        yield node
    assert "principal=User:alice" in node.output.read_text()


@pytest.fixture
def ticket(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `kinit` leaves: the path of a ticket of alice, which is the default one now."""
    cache = realm.kinit("alice", realm.keytab("alice"))
    monkeypatch.setenv("KRB5_CONFIG", str(realm.configuration))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    return cache


PYTHON = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

client, bootstrap, topic = sys.argv[1:]
settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"}
settings["bootstrap_servers"] = bootstrap

async def aiokafka():
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"x")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        return (await consumer.getone()).value

def kafka_python():
    producer = KafkaProducer(**settings)
    producer.send(topic, b"x").get(60)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    value = next(consumer).value
    consumer.close()
    return value

print(asyncio.run(asyncio.wait_for(aiokafka(), 120)) if client == "aiokafka" else kafka_python())
"""


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_python(client: str, node: NodeProcess, ticket: str, topic: str) -> None:
    """In a process of its own: both look for the package gssapi once, when they are imported."""
    environ = {**os.environ, "PYTHONPATH": package()} if package() else None
    done = subprocess.run(
        [sys.executable, "-c", PYTHON, client, node.bootstrap, topic],
        env=environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.stdout == "b'x'\n", done.stderr


def test_librdkafka_without_it_says_how_to_get_it(node: NodeProcess, ticket: str, topic: str) -> None:
    """The wheels of confluent-kafka have no GSSAPI; one that was built with it logs in."""
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}
    try:
        Producer({**given, "sasl.kerberos.kinit.cmd": ""})
    except KafkaException:
        with pytest.raises(SecurityFailure, match="--no-binary confluent-kafka"):
            settings_of(parse_security(given))
        return
    producer = Producer({"bootstrap.servers": node.bootstrap, **settings_of(parse_security(given))})
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0


@pytest.mark.nightly("tests/conformance/security/test_kerberos.py::test_python")
def test_kcat(node: NodeProcess, ticket: str, topic: str) -> None:
    """Debian's librdkafka has it, by Cyrus SASL."""
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    command = [
        "kcat",
        "-b",
        node.bootstrap,
        "-t",
        topic,
        "-X",
        "security.protocol=SASL_PLAINTEXT",
        "-X",
        "sasl.mechanisms=GSSAPI",
        "-X",
        "sasl.kerberos.service.name=kafka",
        "-X",
        "sasl.kerberos.kinit.cmd=:",
    ]
    done = subprocess.run([*command, "-P"], input="x\n", capture_output=True, text=True, timeout=120, check=False)
    if "No worthy mechs found" in done.stderr or "no mechanism available" in done.stderr:
        pytest.skip("kcat is not installed with libsasl2-modules-gssapi-mit")
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*command, "-C", "-c", "1", "-o", "beginning"], capture_output=True, text=True, timeout=120)
    assert done.stdout == "x\n", done.stderr


@pytest.mark.nightly("tests/conformance/security/test_kerberos.py::test_python")
def test_console_tools(node: NodeProcess, realm: Realm, ticket: str, topic: str, tmp_path: Path) -> None:
    """Java's, with a keytab and with the ticket of kinit."""
    if shutil.which("java") is None:
        pytest.skip("no Java here to run Apache Kafka with")
    file = tmp_path / "client.properties"
    cached = f'{KERBEROS_MODULE} required useTicketCache=true ticketCache="{ticket}";'
    for text, value in ((jaas(realm.keytab("alice"), "alice"), "one"), (cached, "two")):
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
            f"sasl.jaas.config={text}\n"
        )
        tool("ConsoleProducer", realm, node, topic, "--command-config", str(file), text=f"{value}\n")
    read = tool(
        "consumer.ConsoleConsumer",
        realm,
        node,
        topic,
        "--command-config",
        str(file),
        "--from-beginning",
        "--max-messages",
        "2",
        "--timeout-ms",
        "60000",
    )
    assert read.split() == ["one", "two"]


def tool(name: str, realm: Realm, node: NodeProcess, topic: str, *arguments: str, text: str = "") -> str:
    command = java(
        f"org.apache.kafka.tools.{name}",
        "--bootstrap-server",
        node.bootstrap,
        "--topic",
        topic,
        *arguments,
        flags=[*START_FAST, f"-Djava.security.krb5.conf={realm.configuration}"],
    )
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
