"""GSSAPI on a node's listener with a real KDC: our own clients and nodes log in, and what is no ticket is refused."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.client.config import ClientConfig
from ottla.client.connection import Connection
from ottla.client.security import SecurityFailure
from ottla.client.security_settings import parse_security
from ottla.config.server import ServerConfig
from ottla.drivers.nodes import kerberos
from ottla.drivers.nodes.node_client import NodeClient, Timing
from ottla.drivers.nodes.sasl_client import login_network
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.network import Address, SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.gssapi import GssapiClient
from ottla.security.sasl.jaas import KERBEROS_MODULE
from ottla.server.node import Node
from tests.kerberos import REALM, NoKerberos, Realm, package
from tests.unit.server.node import Client, running
from tests.unit.server.security.test_authentication import of
from tests.unit.server.stub import run

NAME = "SASL_PLAINTEXT"
PREFIX = f"listener.name.{NAME.lower()}."
SERVICE = "kafka/localhost"
QUICK = Timing(request_timeout_ms=20_000, backoff_ms=1, backoff_ms_max=4, setup_timeout_ms=20_000)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    try:
        package()
        made = Realm(tmp_path_factory.mktemp("realm"))
    except NoKerberos as error:
        pytest.skip(f"no Kerberos here: {error}")
    made.add(SERVICE, "alice", "bob/admin", "kafka/elsewhere")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def configuration(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(realm.configuration))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.directory}/nobody's")


def jaas(keytab: str, principal: str) -> str:
    return f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}";'


def settings(realm: Realm) -> dict[str, str]:
    return {
        "listeners": f"{NAME}://127.0.0.1:0",
        "inter.broker.listener.name": NAME,
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2](bob-.*),DEFAULT",
        f"{PREFIX}sasl.enabled.mechanisms": "GSSAPI",
        f"{PREFIX}gssapi.sasl.jaas.config": jaas(realm.keytab(SERVICE), SERVICE),
    }


def client_settings(realm: Realm, principal: str = "alice") -> dict[str, str]:
    return {
        "security.protocol": NAME,
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas(realm.keytab(principal), principal),
    }


def principals(node: Node) -> set[str]:
    return {each.principal for listener in node.listeners for each in listener.connections}


def log_in(node: Node, given: Mapping[str, str]) -> set[str]:
    """By the blocking client, in a thread; returns whom the node sees."""
    port = node.ports[NAME]
    connection = Connection("localhost", port, ClientConfig((f"localhost:{port}",), security=parse_security(given)))
    try:
        return principals(node)
    finally:
        connection.close()


def test_clients_and_nodes_log_in(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the library runs on the event loop's thread."""
    threads: set[int] = set()
    step = kerberos.Context.step

    def noted(self: kerberos.Context, token: bytes | None) -> bytes:
        threads.add(threading.get_ident())
        return step(self, token)

    monkeypatch.setattr(kerberos.Context, "step", noted)

    async def test() -> None:
        async with running(str(tmp_path), settings(realm)) as node:
            for name, user in (("alice", "User:alice"), ("bob/admin", "User:bob-admin")):
                assert user in await asyncio.to_thread(log_in, node, client_settings(realm, name))
            cache = realm.kinit("alice", realm.keytab("alice"))
            cached = f'{KERBEROS_MODULE} required useTicketCache=true ticketCache="{cache}";'
            given = {**client_settings(realm), "sasl.jaas.config": cached}
            assert "User:alice" in await asyncio.to_thread(log_in, node, given)
            client = NodeClient(network(node.config), "test", random.Random(1), QUICK)
            assert await metadata(client, node) and "User:kafka" in principals(node)
            await client.close()
            assert of(node).counts.successes == 4 and not of(node).counts.failures

    run(test())
    assert threads and threading.get_ident() not in threads


async def metadata(client: NodeClient, node: Node) -> Any:
    address = Address("localhost", node.ports[NAME])
    return (await client.ask(address, ApiKey.METADATA, {"topics": []}, versions=(9, 9))).response.brokers


def test_tokens_without_requests_around_them(realm: Realm, tmp_path: Path) -> None:
    """SaslHandshake 0, as clients before Kafka 1.0: one of the tokens is empty."""

    async def test() -> None:
        async with running(str(tmp_path), settings(realm)) as node:
            initiator = kerberos.Initiator("kafka", keytab=realm.keytab("alice"), principal=f"alice@{REALM}")
            mechanism = GssapiClient(initiator.context("localhost"))
            client = Client(*await asyncio.open_connection("127.0.0.1", node.ports[NAME], limit=1 << 24))
            assert not (await client.ask(ApiKey.SASL_HANDSHAKE, 0, {"mechanism": "GSSAPI"}))["error_code"]
            token: bytes | None = mechanism.first()
            sent = []
            while token is not None:
                sent.append(len(token))
                client.writer.write(len(token).to_bytes(4, "big") + token)
                (size,) = struct.unpack(">i", await client.reader.readexactly(4))
                token = mechanism.step(await client.reader.readexactly(size))
            assert 0 in sent and principals(node) == {"User:alice"}
            assert (await client.ask(ApiKey.METADATA, 9, {"topics": []}))["brokers"]
            client.close()

    run(test())


def network(config: ServerConfig) -> Any:
    async def run_in_thread(work: Any) -> Any:
        return await asyncio.to_thread(work)

    return login_network(SystemNetwork(), config, NAME, "GSSAPI", random.Random(1), run_in_thread)


def test_what_is_refused(realm: Realm, tmp_path: Path) -> None:
    """A ticket for another service, and 200 tokens that are none, changed and cut."""

    async def test() -> None:
        async with running(
            str(tmp_path), {**settings(realm), "connection.failed.authentication.delay.ms": "0"}
        ) as node:
            initiator = kerberos.Initiator("kafka", keytab=realm.keytab("alice"), principal=f"alice@{REALM}")
            good = GssapiClient(initiator.context("localhost")).first()
            other = GssapiClient(initiator.context("elsewhere")).first()
            randoms = random.Random(3)
            for number in range(200):
                token = bytearray(good)
                if number % 3 == 0:  # in what is encrypted: others, such as the number of the key, nobody signs
                    token[-1 - randoms.randrange(150)] ^= 1 << randoms.randrange(8)
                elif number % 3 == 1:
                    del token[randoms.randrange(len(token)) :]
                else:
                    token = bytearray(randoms.randbytes(randoms.randrange(2000)))
                answer = await asked(node, bytes(token))
                assert answer["error_code"] == ErrorCode.sasl_authentication_failed, (number, bytes(token))
                assert "Kerberos" not in answer["error_message"] and "localhost" not in answer["error_message"]
            assert (await asked(node, other))["error_code"] == ErrorCode.sasl_authentication_failed
            assert (await asked(node, good))["error_code"] == 0
            assert (await asked(node, good))["error_code"] == ErrorCode.sasl_authentication_failed  # a replay

    run(test())


async def asked(node: Node, token: bytes) -> Any:
    client = Client(*await asyncio.open_connection("127.0.0.1", node.ports[NAME], limit=1 << 24))
    try:
        assert not (await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"}))["error_code"]
        return await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
    finally:
        client.close()


def test_keys_and_tickets_that_change(realm: Realm, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new key in the keytab is taken up without a restart; a ticket is renewed, and kept while the KDC is away."""
    keytab = realm.keytab("alice")
    again = kerberos.Renewal(seconds_min=0)
    initiator = kerberos.Initiator("kafka", keytab=keytab, principal=f"alice@{REALM}", renewal=again)

    async def test() -> None:
        async with running(str(tmp_path), settings(realm)) as node:
            assert "User:alice" in await asyncio.to_thread(log_in, node, client_settings(realm))
            realm.keytab(SERVICE, keep=False)
            assert (await asked(node, GssapiClient(initiator.context("localhost")).first()))["error_code"] == 0

    run(test())
    first = initiator.credentials()
    assert initiator.credentials() is first
    initiator._renew_at_s = 0.0
    second = initiator.credentials()
    assert second is not first
    Path(keytab).rename(keytab + ".away")
    initiator._renew_at_s = 0.0
    with caplog.at_level(logging.WARNING, "ottla.authentication"):
        assert initiator.credentials() is second
    assert "could not be renewed yet" in caplog.text
    initiator._renew_at_s = initiator._expires_at_s = 0.0
    with pytest.raises(AuthenticationFailed):
        initiator.credentials()
    Path(keytab + ".away").rename(keytab)
    assert initiator.credentials() is not second


def test_failures_say_what_to_do(realm: Realm, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(realm)) as node:
            with pytest.raises(SecurityFailure, match=r"no Kerberos ticket for other/localhost: .*not found"):
                await asyncio.to_thread(log_in, node, {**client_settings(realm), "sasl.kerberos.service.name": "other"})
            unknown = {**client_settings(realm), "sasl.jaas.config": jaas(realm.keytab("alice"), "carol")}
            with pytest.raises(SecurityFailure, match="check the keytab"):
                await asyncio.to_thread(log_in, node, unknown)
            changed = {**node.config.static, "sasl.kerberos.service.name": "other"}
            client = NodeClient(network(ServerConfig(changed)), "test", random.Random(1), QUICK)
            with pytest.raises(KafkaError, match="not found"):
                await metadata(client, node)
            await client.close()

    run(test())
    for change, why in (
        ({f"{PREFIX}gssapi.sasl.jaas.config": jaas("/nowhere", SERVICE)}, "/nowhere cannot be read"),
        ({f"{PREFIX}gssapi.sasl.jaas.config": jaas(realm.keytab("alice"), SERVICE)}, "has no key of kafka/localhost"),
        ({f"{PREFIX}gssapi.sasl.jaas.config": jaas(realm.keytab("alice"), "alice")}, "that of a service has a host"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:[1:$2]"}, "allowed are"),
    ):
        with pytest.raises(OttlaError, match=why):
            run(started(tmp_path / "never", {**settings(realm), **change}))
    assert not (tmp_path / "never").exists()


async def started(directory: Path, given: Mapping[str, str]) -> None:
    async with running(str(directory), given):
        pass


def test_without_the_package(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(OttlaError, match=r'pip install "ottla\[kerberos\]"'):
        run(started(tmp_path / "never", settings(realm)))
