"""Clients of others log in: PLAIN and both SCRAMs, right and wrong passwords, and Kafka's tool that makes the users."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.conformance.clients import build
from tests.conformance.shell import Shell
from tests.node import NodeProcess
from tests.unit.drivers.nodes.test_jwks import provider, sending
from tests.unit.security.test_jwt import jwk, rsa_key

REPORTED_S = 60
"""By then the client has said why."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECRET = "alice-secret, =with odd; characters"
PREFIX = "listener.name.sasl_plaintext."
HMACS: list[str] = []
"""Passwords of tokens, which no file of the node has."""
JAAS = "org.apache.kafka.common.security.{}LoginModule required {};"
USERS = f'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="{SECRET}"'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that demands a login, with a user in all three mechanisms; its log and files show no password."""
    directory = tmp_path_factory.mktemp("secured")
    node = NodeProcess(directory / "data")
    node.settings |= {
        "listeners": f"SASL_PLAINTEXT://{node.bootstrap}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{PREFIX}sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{PREFIX}plain.sasl.jaas.config": JAAS.format("plain.Plain", USERS),
        "ottla.log.level": "DEBUG",
        "delegation.token.secret.key": "the secret of tokens",
    }
    with node:
        admin = AdminClient(of_librdkafka(node, "PLAIN", "admin", "admin-secret"))
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            asked = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 8192), SECRET.encode())
            for future in admin.alter_user_scram_credentials([asked]).values():
                future.result(60)
        yield node
    written = [node.output, *(each for each in directory.rglob("*") if each.is_file())]
    for path in written:
        data = path.read_bytes()
        assert SECRET.encode() not in data and b"admin-secret" not in data, path
        assert b"the secret of tokens" not in data and not any(each.encode() in data for each in HMACS), path


def of_librdkafka(node: NodeProcess, mechanism: str, name: str = "alice", password: str = SECRET) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


@pytest.mark.client("confluent-kafka", "logs in by PLAIN and SCRAM")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(secured: NodeProcess, topic: str, mechanism: str) -> None:
    settings = of_librdkafka(secured, mechanism)
    producer = Producer(settings)
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(60)
    assert record is not None and record.value() == b"x"
    consumer.close()
    if mechanism != "PLAIN":
        return
    told: list[str] = []
    wrong = AdminClient({**settings, "sasl.password": "wrong", "error_cb": lambda error: told.append(error.str())})
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=3)
    end_s = time.monotonic() + REPORTED_S
    while not any("uthentication fail" in each for each in told):
        assert time.monotonic() < end_s, told
        wrong.poll(0.2)


@pytest.mark.client("kafka-python", "logs in by PLAIN and SCRAM")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: NodeProcess, topic: str, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    settings = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
    }
    producer = KafkaProducer(**settings)
    producer.send(topic, b"x").get(60)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    assert next(consumer).value == b"x"
    consumer.close()
    if mechanism != "PLAIN":
        return
    with pytest.raises(Exception, match=r"(?i)authenticat|bootstrap|NoBrokers"):
        KafkaProducer(**{**settings, "sasl_plain_password": "wrong"}, bootstrap_timeout_ms=1500)


@pytest.mark.client("aiokafka", "logs in by PLAIN and SCRAM")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(secured: NodeProcess, topic: str, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError

    settings = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
    }

    async def test() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"x")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            assert (await consumer.getone()).value == b"x"
        wrong = AIOKafkaProducer(**{**settings, "sasl_plain_password": "wrong"})
        with pytest.raises(KafkaError):
            await wrong.start()
        await wrong.stop()

    asyncio.run(asyncio.wait_for(test(), 120))


@pytest.mark.client("franz-go", "logs in by PLAIN and SCRAM")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_franz_go(secured: NodeProcess, topic: str, mechanism: str) -> None:
    why = build.missing("go")
    if why is not None:
        pytest.skip(why)
    program = build.build("go") / "bin" / "franz-login"

    def attempt(password: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), secured.bootstrap, mechanism, "alice", password, topic]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = attempt(SECRET)
    assert done.stdout == f"by {mechanism}\n", done.stderr
    assert "SASL_AUTHENTICATION_FAILED" in attempt("wrong").stderr


def test_librdkafka_with_tokens_of_a_provider(tmp_path: Path, topic: str) -> None:
    """OAUTHBEARER from end to end: the client fetches its token, the node the keys. Tokens of four seconds are renewed
    in time, and none of another issuer is accepted."""
    claims = {"iss": "me", "aud": "kafka", "sub": "svc"}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/keys":
            sending(json.dumps({"keys": [jwk(rsa_key())]}).encode())(handler)
            return
        handler.rfile.read(int(handler.headers["Content-Length"]))
        now_s = int(time.time())
        token = jwt.encode({**claims, "iat": now_s, "exp": now_s + 4}, rsa_key(), "RS256", headers={"kid": "one"})
        found = {"access_token": token, "token_type": "Bearer", "expires_in": 4}
        sending(json.dumps(found).encode(), **{"Content-Type": "application/json"})(handler)

    with provider(answer) as url:
        node = NodeProcess(tmp_path / "data")
        oauth = f"{PREFIX}oauthbearer.sasl.oauthbearer."
        node.settings |= {
            "listeners": f"SASL_PLAINTEXT://{node.bootstrap}",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{oauth}jwks.endpoint.url": f"{url}/keys",
            f"{oauth}expected.issuer": "me",
            f"{oauth}expected.audience": "kafka",
        }
        settings = {
            "bootstrap.servers": node.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "id",
            "sasl.oauthbearer.client.secret": "canary",
            "sasl.oauthbearer.token.endpoint.url": f"{url}/token",
        }
        with node:
            producer = Producer(settings)
            until_s = time.monotonic() + 6
            while time.monotonic() < until_s:
                producer.produce(topic, b"x")
                producer.poll(0.2)
            assert producer.flush(60) == 0
            claims["iss"] = "other"
            with pytest.raises(KafkaException):
                AdminClient(settings).list_topics(timeout=3)


def properties(path: Path, mechanism: str, name: str, password: str) -> Path:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    jaas = JAAS.format(module, f'username="{name}" password="{password}"')
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
        "request.timeout.ms=20000\ndefault.api.timeout.ms=20000\n"
    )
    return path


@pytest.mark.client("ConfigCommand", "users of SCRAM: --alter --add-config and --delete-config, --describe")
def test_kafkas_tools(secured: NodeProcess, shell: Shell, tmp_path: Path) -> None:
    """kafka-configs makes users, and Java's client logs in by all mechanisms."""
    admin = properties(tmp_path / "admin.properties", "PLAIN", "admin", "admin-secret")

    def configs(*arguments: str, check: bool = True) -> Any:
        return shell.run(
            "ConfigCommand",
            "--bootstrap-server",
            secured.bootstrap,
            "--command-config",
            str(admin),
            *arguments,
            check=check,
        )

    user = ("--entity-type", "users", "--entity-name", "carol")
    for mechanism in MECHANISMS[1:]:
        config = f"{mechanism}=[iterations=8192,password=carol-secret]"
        assert "Completed updating config for user carol." in configs("--alter", "--add-config", config, *user).out
    described = configs("--describe", *user).out
    assert "SCRAM-SHA-256=iterations=8192" in described and "SCRAM-SHA-512=iterations=8192" in described
    for mechanism in MECHANISMS:
        name, password = ("admin", "admin-secret") if mechanism == "PLAIN" else ("carol", "carol-secret")
        file = properties(tmp_path / f"{mechanism}.properties", mechanism, name, password)
        shell.run("TopicCommand", "--bootstrap-server", secured.bootstrap, "--command-config", str(file), "--list")
    configs("--alter", "--delete-config", "SCRAM-SHA-256", *user)
    assert "SCRAM-SHA-256" not in configs("--describe", *user).out
    gone = properties(tmp_path / "gone.properties", "SCRAM-SHA-256", "carol", "carol-secret")
    refused = shell.run(
        "TopicCommand", "--bootstrap-server", secured.bootstrap, "--command-config", str(gone), "--list", check=False
    )
    assert refused.status != 0 and "invalid credentials with SASL mechanism SCRAM-SHA-256" in refused.out


def token_properties(path: Path, token_id: str, hmac: str) -> Path:
    file = properties(path, "SCRAM-SHA-512", token_id, hmac)
    file.write_text(file.read_text().replace(f'password="{hmac}"', f'password="{hmac}" tokenauth="true"'))
    return file


@pytest.mark.client("DelegationTokenCommand", "--create, --describe, --renew and --expire")
def test_kafkas_tool_of_tokens(secured: NodeProcess, shell: Shell, tmp_path: Path, topic: str) -> None:
    """Java's client, franz-go and our own log in with what it makes; with a token nobody gets another one."""
    alice = properties(tmp_path / "alice.properties", "PLAIN", "alice", SECRET)

    def tokens(*arguments: str, file: Path = alice, check: bool = True) -> Any:
        place = ("--bootstrap-server", secured.bootstrap, "--command-config", str(file))
        return shell.run("DelegationTokenCommand", *place, *arguments, check=check)

    made = tokens("--create", "--max-life-time-period", "3600000", "--renewer-principal", "User:admin").out
    token_id, hmac, owner, requester, renewers = made.splitlines()[-1].split()[:5]
    HMACS.append(hmac)
    assert (owner, requester, renewers) == ("User:alice", "User:alice", "[User:admin]")
    assert token_id in tokens("--describe", "--owner-principal", "User:alice").out
    assert "Total number of tokens : 0" in tokens("--describe").out, "an empty list of owners"
    assert "New expiry date" in tokens("--renew", "--hmac", hmac, "--renew-time-period", "-1").out

    by_token = token_properties(tmp_path / "token.properties", token_id, hmac)
    place = ("--bootstrap-server", secured.bootstrap, "--command-config", str(by_token))
    shell.run("TopicCommand", *place, "--create", "--topic", topic)
    refused = tokens("--create", "--max-life-time-period", "-1", file=by_token, check=False)
    assert refused.status != 0 and "not allowed" in refused.out + refused.err

    from ottla.client.cluster import Cluster
    from ottla.client.config import ClientConfig
    from ottla.client.properties import read_file
    from ottla.client.security_settings import parse_security

    config = ClientConfig((secured.bootstrap,), security=parse_security(read_file(by_token)))
    ours = Cluster(config)
    assert ours.partitions([topic])
    ours.close()
    why = build.missing("go")
    if why is None:
        program = build.build("go") / "bin" / "franz-login"
        command = [str(program), secured.bootstrap, "TOKEN", token_id, hmac, topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout == "by TOKEN\n", done.stderr

    assert "Completed expire" in tokens("--expire", "--hmac", hmac, "--expiry-time-period", "-1").out
    gone = shell.run("TopicCommand", *place, "--list", check=False)
    assert gone.status != 0 and "invalid credentials with SASL mechanism SCRAM-SHA-512" in gone.out
