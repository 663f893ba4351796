"""A node with listeners over TLS: who its clients are, certificates that change, and three nodes among themselves."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.errors import OttlaError
from ottla.filesystem import OsFileSystem
from ottla.network import SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from ottla.testing.process import reserve
from tests.certificates import Authority, Identity, ssl_settings
from tests.unit.server.node import Client, batch, running
from tests.unit.server.stub import run, until

AUTHORITY = Authority()
SUBJECT = x509.Name(
    [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
        x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
    ]
)
ALICE = AUTHORITY.issue(SUBJECT, hosts=())
ALICE_SUBJECT = r"CN=alice,O=Acme\, Inc.,C=DE"
PREFIX = "listener.name.ssl."


def settings(directory: Path, *, client_auth: str = "required", **more: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        **ssl_settings(directory, AUTHORITY, AUTHORITY.issue("node"), PREFIX, client_auth=client_auth),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def client_context(identity: Identity | None = ALICE, directory: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    if identity is not None:
        assert directory is not None
        (directory / "client.pem").write_text(identity.pem())
        context.load_cert_chain(directory / "client.pem")
    return context


async def connect(node: Node, directory: Path, identity: Identity | None = ALICE, listener: str = "SSL") -> Client:
    context = client_context(identity, directory)
    opened = await asyncio.open_connection("127.0.0.1", node.ports[listener], limit=1 << 24, ssl=context)
    return Client(*opened)


def principals(node: Node) -> list[str]:
    return [each.principal for listener in node.listeners for each in listener.connections]


def test_a_client_with_a_certificate(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(tmp_path)) as node:
            client = await connect(node, tmp_path)
            await client.create("t")
            large = batch(300_000, count=3)
            assert not (await client.produce("t", large))["error_code"]
            assert not (await client.produce("t", batch(10)))["error_code"]
            found = await client.fetch("t", 0, max_bytes=1 << 24)
            assert len(found["records"]) > 900_000
            assert principals(node) == [f"User:{ALICE_SUBJECT}"]
            assert node.image.brokers[1].endpoints["SSL"].security_protocol == 1
            client.close()

    run(test())


def test_names_by_rules(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = {"ssl__principal__mapping__rules": r"RULE:^CN=(.*?),O=Acme.*$/$1/U"}

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(tmp_path, **rules)) as node:
            client = await connect(node, tmp_path)
            await client.create("t")
            assert principals(node) == ["User:ALICE"]
            stranger = await connect(node, tmp_path, AUTHORITY.issue("mallory", hosts=()))
            assert await stranger.reader.read() == b""
            (record,) = [each for each in caplog.records if each.getMessage() == "a client's certificate has no user"]
            assert "CN=mallory" in record.ottla_fields["error"]  # type: ignore[attr-defined]
            client.close()

    run(test())


def test_a_name_without_end_is_no_user(tmp_path: Path) -> None:
    """Rules are matched against it, with patterns that may take the square of its length or more."""
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "unit" * 15) for _ in range(17)]
    long = AUTHORITY.issue(x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, "mallory")]), hosts=())
    rules = {"ssl__principal__mapping__rules": r"RULE:^CN=(.*?),.*$/$1/"}

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(tmp_path, **rules)) as node:
            stranger = await connect(node, tmp_path, long)
            assert await asyncio.wait_for(stranger.reader.read(), 60) == b""
            short = AUTHORITY.issue(x509.Name([*units[3:], x509.NameAttribute(NameOID.COMMON_NAME, "eve")]), hosts=())
            client = await connect(node, tmp_path, short)
            await client.create("t")
            assert principals(node) == ["User:eve"]
            client.close()

    run(test())


def test_a_certificate_that_is_only_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(tmp_path, client_auth="requested")) as node:
            for identity, principal in ((None, "User:ANONYMOUS"), (ALICE, f"User:{ALICE_SUBJECT}")):
                client = await connect(node, tmp_path, identity)
                await client.ask(ApiKey.API_VERSIONS, 0, {})
                assert principals(node) == [principal]
                client.close()
                await until(lambda: not principals(node))

    run(test())


def test_a_listener_without_tls_is_as_it_was(tmp_path: Path) -> None:
    more = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}

    async def test() -> None:
        async with running(str(tmp_path / "data"), {**settings(tmp_path), **more}) as node:
            plain, secured = await Client.connect(node), await connect(node, tmp_path)
            await plain.create("t")
            assert not (await plain.produce("t", batch(10)))["error_code"]
            assert len((await secured.fetch("t", 0))["records"])
            assert type(node.listeners[0].network) is SystemNetwork
            plain.close()
            secured.close()

    run(test())


def test_failures_are_counted_and_logged_now_and_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(tmp_path)) as node:
            assert node.tls is not None
            for _ in range(3):
                client = await connect(node, tmp_path, None)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await client.reader.read()
                    raise ConnectionResetError
            failed = node.tls.failed
            await until(lambda: failed["SSL"] == 3)
            logged = [each for each in caplog.records if each.getMessage() == "a TLS handshake failed"]
            assert len(logged) == 1
            assert logged[0].ottla_fields["client"] == "127.0.0.1"  # type: ignore[attr-defined]
            assert "certificate" in logged[0].ottla_fields["error"]  # type: ignore[attr-defined]

    run(test())


async def taken_up(node: Node, count: int) -> None:
    assert node.tls is not None
    listener = node.tls.listeners["SSL"]
    await until(lambda: listener.reloads == count)


def presented(client: Client) -> bytes:
    found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(found, bytes)
    return found


def test_a_certificate_is_renewed_under_load_and_no_request_fails(tmp_path: Path) -> None:
    async def test() -> None:
        more = settings(tmp_path, ottla__ssl__watch__interval__ms="100")
        async with running(str(tmp_path / "data"), more) as node:
            first = await connect(node, tmp_path)
            await first.create("t")
            produced = 0
            stop = asyncio.Event()

            async def load() -> None:
                nonlocal produced
                while not stop.is_set():
                    client = await connect(node, tmp_path)
                    for _ in range(5):
                        assert not (await client.produce("t", batch(100)))["error_code"]
                        produced += 1
                    client.close()

            loads = [asyncio.create_task(load()) for _ in range(3)]
            for number in range(1, 4):
                renewed = AUTHORITY.issue("node", days=(-1, 100 + number))
                ssl_settings(tmp_path, AUTHORITY, renewed, PREFIX)
                await taken_up(node, number)
                client = await connect(node, tmp_path)
                assert presented(client) == renewed.der
                client.close()
            stop.set()
            await asyncio.gather(*loads)
            assert not (await first.produce("t", batch(100)))["error_code"]
            assert produced
            end = await first.ask(ApiKey.LIST_OFFSETS, 1, latest("t"))
            assert end["topics"][0]["partitions"][0]["offset"] == produced + 1
            first.close()

    run(test())


def latest(topic: str) -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": -1}
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}


def alteration(changes: Mapping[str, str | None]) -> dict[str, Any]:
    configs = [
        {"name": name, "config_operation": 1 if value is None else 0, "value": value} for name, value in changes.items()
    ]
    resource = {"resource_type": 4, "resource_name": "1", "configs": configs}
    return {"resources": [resource], "validate_only": False}


def store(path: str, text: str) -> None:
    Path(path).write_text(text)


async def altered(client: Client, changes: Mapping[str, str | None]) -> tuple[int, str | None]:
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alteration(changes))
    (row,) = answer["responses"]
    return row["error_code"], row["error_message"]


def test_dynamic_changes_are_checked_and_refused_in_the_answer(tmp_path: Path) -> None:
    """Kafka accepts a key that does not fit, and each handshake fails afterwards."""

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(tmp_path / "first")) as node:
            client = await connect(node, tmp_path)
            renewed = AUTHORITY.issue("node", days=(-1, 500))
            other = ssl_settings(tmp_path / "second", AUTHORITY, renewed, PREFIX)
            location = f"{PREFIX}ssl.keystore.location"
            for changes, said in (
                ({location: "/nowhere"}, "/nowhere cannot be read"),
                ({f"{PREFIX}ssl.client.auth": "maybe"}, "ssl.client.auth"),
                ({f"{PREFIX}ssl.keystore.lokation": "/x"}, "did you mean"),
                ({f"{PREFIX}ssl.principal.mapping.rules": "RULE:.*/x/"}, "at start only"),
                ({"ssl.keymanager.algorithm": "PKIX"}, "at start only"),
                ({location: None}, None),
            ):
                code, message = await altered(client, changes)
                if said is None:
                    assert code == 0, message
                else:
                    assert code == 42
                    assert said in (message or "")
            store(other[location], renewed.key_pem() + AUTHORITY.issue("node").chain_pem)
            code, message = await altered(client, {location: other[location]})
            assert code == 42 and "does not belong" in (message or "")
            store(other[location], renewed.pem())
            assert (await altered(client, {location: other[location]}))[0] == 0
            await taken_up(node, 1)
            again = await connect(node, tmp_path)
            assert presented(again) == renewed.der
            again.close()
            client.close()

    run(test())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"{PREFIX}ssl.keystore.location": "/nowhere"}, "listener SSL: /nowhere cannot be read"),
        ({f"{PREFIX}ssl.keystor.location": "/x"}, "did you mean listener.name.ssl.ssl.keystore.location"),
        ({"ssl.enabled.protocols": "TLSv1"}, "not safe"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "neither DEFAULT nor RULE"),
        ({f"{PREFIX}ssl.client.auth": "sure"}, "ssl.client.auth=sure is refused"),
        ({"inter.broker.listener.name": "OTHER"}, "inter.broker.listener.name is OTHER"),
        ({"ssl.engine.factory.class": "org.example.X"}, "loads no classes"),
    ],
)
def test_wrong_settings_refuse_the_start(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    """Redpanda's CVE-2023-30450: a field of TLS was lost, and nobody was told."""
    texts = {**settings(tmp_path), "log.dirs": str(tmp_path / "data"), **changes}
    with pytest.raises(OttlaError) as refused:
        Node(ServerConfig.load(None, texts, {}), OsFileSystem(), SystemClock(), random.Random(1), SystemNetwork())
    assert said in str(refused.value)


# Three nodes.


@asynccontextmanager
async def cluster(directory: Path, identities: list[Identity], protocol: str = "SSL") -> AsyncIterator[list[Node]]:
    """Brokers and controllers 1 to 3, which reach each other only over TLS, each with a certificate of its own."""
    held = [reserve(0) for _ in range(6)]
    ports = [each.getsockname()[1] for each in held]
    voters = ",".join(f"{number}@localhost:{ports[number + 2]}" for number in (1, 2, 3))
    async with AsyncExitStack() as stack:
        starting = []
        for number, identity in enumerate(identities, start=1):
            texts = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": f"INTERNAL:{protocol},CONTROLLER:{protocol}",
                "inter.broker.listener.name": "INTERNAL",
                "listeners": f"INTERNAL://localhost:{ports[number - 1]},CONTROLLER://localhost:{ports[number + 2]}",
                "log.dirs": str(directory / f"node-{number}"),
                "ottla.cluster.id": "a-secured-cluster-000A",
                "offsets.topic.replication.factor": "3",
                **ssl_settings(directory / f"tls-{number}", AUTHORITY, identity, client_auth="required"),
            }
            config = ServerConfig.load(None, texts, {})
            node = Node(config, OsFileSystem(), SystemClock(), random.Random(number), SystemNetwork())
            starting.append(node)
            stack.push_async_callback(node.stop)
        await asyncio.gather(*(each.start() for each in starting))
        yield starting
    for each in held:
        each.close()


def test_three_nodes_reach_each_other_only_by_certificate(tmp_path: Path) -> None:
    async def test() -> None:
        identities = [AUTHORITY.issue(f"node-{number}") for number in (1, 2, 3)]
        async with cluster(tmp_path, identities) as nodes:
            client = await connect(nodes[0], tmp_path, listener="INTERNAL")
            topic = {"name": "t", "num_partitions": 3, "replication_factor": 3, "assignments": (), "configs": ()}
            body = {"topics": [topic], "timeout": 30_000, "validate_only": False}
            answer = await client.ask(ApiKey.CREATE_TOPICS, 7, body)
            assert not answer["topics"][0]["error_code"], answer
            led = nodes[0].image.topic("t")
            assert led is not None
            leaders = {number: partition.leader for number, partition in led.partitions.items()}
            for partition, leader in leaders.items():
                there = await connect(nodes[leader - 1], tmp_path, listener="INTERNAL")
                for _ in range(3):
                    row = await there.produce("t", batch(200_000), partition=partition)
                    assert not row["error_code"]
                there.close()
            seen = {each for node in nodes for each in principals(node)}
            assert {f"User:CN=node-{number}" for number in (1, 2, 3)} <= seen
            assert "User:ANONYMOUS" not in seen
            client.close()

    run(test())


def test_a_node_of_another_authority_is_kept_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A controller asks it in vain, and both say why."""
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings(tmp_path)) as node:
            other = Authority("Elsewhere")
            texts = {
                "process.roles": "broker",
                "node.id": "9",
                "controller.listener.names": "SSL",
                "listeners": "INTERNAL://127.0.0.1:0",
                "inter.broker.listener.name": "INTERNAL",
                "listener.security.protocol.map": "INTERNAL:SSL,SSL:SSL",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{node.ports['SSL']}",
                "initial.broker.registration.timeout.ms": "1000",
                "log.dirs": str(tmp_path / "other"),
                **ssl_settings(tmp_path / "tls-9", other, other.issue("node-9"), client_auth="required"),
            }
            broker = Node(
                ServerConfig.load(None, texts, {}), OsFileSystem(), SystemClock(), random.Random(9), SystemNetwork()
            )
            with pytest.raises(OttlaError):
                await broker.start()
            await broker.stop()
            assert node.tls is not None and node.tls.failed["SSL"]
            messages = [str(getattr(each, "ottla_fields", {}).get("error")) for each in caplog.records]
            assert any("unknown ca" in each for each in messages)

    run(test())
