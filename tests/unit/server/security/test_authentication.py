"""The states of a connection before, during and after its login, request for request; what is expected was seen from
Apache Kafka 4.3.0 (`tests/conformance/security/test_sasl_like_kafka.py` asks both)."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
import struct
import threading
import time
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.config.server import ServerConfig
from ottla.controller.scram import record_of
from ottla.drivers.metadata.formatting import format_directories
from ottla.errors import OttlaError
from ottla.filesystem import DISK_THREADS_MAX, OsFileSystem
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import scram
from ottla.security.sasl.client import OAuthBearerClient, PlainClient, ScramClient
from ottla.security.sasl.plain import PlainServer
from ottla.security.sasl.scram_argument import parse_scram_argument
from ottla.server.listeners import sasl_listeners
from ottla.server.node import Node
from ottla.server.security.authentication import Authentication
from tests.certificates import Authority, ssl_settings
from tests.unit.server.node import Client, batch, running
from tests.unit.server.stub import run, until

NAME = "SASL_PLAINTEXT"
PREFIX = f"listener.name.{NAME.lower()}."
PLAIN_USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_alice="alice-secret";'
)
SETTINGS = {
    "listeners": f"{NAME}://127.0.0.1:0",
    "inter.broker.listener.name": NAME,
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "connection.failed.authentication.delay.ms": "0",
    f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": PLAIN_USERS,
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@asynccontextmanager
async def secured(directory: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[Node]:
    async with running(str(directory), {**SETTINGS, **(settings or {})}) as node:
        yield node


async def connect(node: Node) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", node.ports[NAME], limit=1 << 24))


def of(node: Node) -> Authentication:
    found = node.listeners[-1].authentication
    assert found is not None
    return found


async def closed(client: Client) -> bytes:
    """What came before the connection was closed."""
    try:
        return await asyncio.wait_for(client.reader.read(), 30)
    except ConnectionResetError:
        return b""


async def versions(client: Client, version: int = 3) -> Any:
    values = {"client_software_name": "test", "client_software_version": "1"}
    return await client.ask(ApiKey.API_VERSIONS, version, values)


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.ask(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


async def authenticate(client: Client, token: bytes, version: int = 2) -> Any:
    return await client.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})


async def log_in(client: Client, name: str = "alice", password: str = "alice-secret", version: int = 2) -> Any:
    assert (await handshake(client))["error_code"] == 0
    return await authenticate(client, PlainClient(name, password).first(), version)


async def metadata(client: Client) -> Any:
    return await client.ask(ApiKey.METADATA, 9, {"topics": []})


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            client = await connect(node)
            told = await versions(client)
            assert {each["api_key"] for each in told["api_keys"]} >= {ApiKey.PRODUCE, ApiKey.SASL_AUTHENTICATE}
            found = await handshake(client)
            assert found == {"error_code": 0, "mechanisms": MECHANISMS}
            answer = await authenticate(client, b"\0alice\0alice-secret", version)
            assert answer["error_code"] == 0 and answer["auth_bytes"] == b"" and answer["error_message"] == ""
            assert (await metadata(client))["brokers"]
            (connection,) = node.listeners[-1].connections
            assert connection.principal == "User:alice"
            assert connection.apis is node.listeners[-1].apis and not connection.login.intercepts
            assert of(node).counts.successes == 1 and of(node).counts.no_reauthentications == (version == 0)
            # Logged in, both requests are out of place, and the connection stays.
            assert (await handshake(client))["error_code"] == 34
            late = await authenticate(client, b"\0alice\0alice-secret")
            assert late["error_code"] == 34 and "after successful authentication" in late["error_message"]
            await metadata(client)

    run(test())


def test_a_login_with_tokens_as_they_are(tmp_path: Path) -> None:
    """SaslHandshake version 0; everything may come at once."""

    async def test() -> None:
        async with secured(tmp_path) as node:
            client = await connect(node)
            client.send(ApiKey.SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"})
            token = b"\0alice\0alice-secret"
            client.writer.write(struct.pack(">i", len(token)) + token)
            client.send(ApiKey.METADATA, 9, {"topics": []})
            assert (await client.receive(ApiKey.SASL_HANDSHAKE, 0))["error_code"] == 0
            assert await client.reader.readexactly(4) == bytes(4)
            assert (await client.receive(ApiKey.METADATA, 9))["brokers"]
            assert of(node).counts.no_reauthentications == 1

            client = await connect(node)
            await handshake(client, version=0)
            client.writer.write(struct.pack(">i", 5) + b"\0a\0bc")
            assert await closed(client) == b""
            assert of(node).counts.failures == 1

    run(test())


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        (ApiKey.METADATA, 9, {"topics": []}),
        (ApiKey.PRODUCE, 9, {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": []}),
        (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0alice-secret"}),
        (ApiKey.LIST_GROUPS, 3, {"states_filter": []}),
    ],
)
def test_anything_else_before_the_handshake_closes(
    tmp_path: Path, api: ApiKey, version: int, values: dict[str, Any]
) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            for first in (False, True):
                client = await connect(node)
                if first:
                    await versions(client)
                client.send(api, version, values)
                assert await closed(client) == b""
            assert of(node).counts.failures == 2

    run(test())


def test_versions_are_answered_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            client = await connect(node)
            client.send(ApiKey.API_VERSIONS, 4, {"client_software_name": "", "client_software_version": ""})
            assert (await client.receive(ApiKey.API_VERSIONS, 4))["error_code"] == 42
            await versions(client, 0)
            client.send(ApiKey.API_VERSIONS, 0, {})
            assert await closed(client) == b""

    run(test())


def test_a_wrong_request_after_the_handshake_gets_its_own_answer(tmp_path: Path) -> None:
    wrong: list[tuple[ApiKey, int, dict[str, Any]]] = [
        (ApiKey.LIST_GROUPS, 3, {"states_filter": []}),
        (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (ApiKey.API_VERSIONS, 0, {}),
        (ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}),
    ]

    async def test() -> None:
        async with secured(tmp_path) as node:
            for api, version, values in wrong:
                client = await connect(node)
                await handshake(client)
                answer = await client.ask(api, version, values)
                assert answer["error_code"] == 34, api
                assert await closed(client) == b""
            client = await connect(node)
            await handshake(client)
            named = {"topics": [{"name": "a", "topic_id": None}]}
            found = await client.ask(ApiKey.METADATA, 9, named)
            assert found["topics"][0]["error_code"] == 34
            assert await closed(client) == b""

    run(test())


def test_an_unknown_mechanism_is_answered_with_those_there_are(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            for mechanism in ("GSSAPI", "plain", ""):
                client = await connect(node)
                found = await handshake(client, mechanism)
                assert found == {"error_code": 33, "mechanisms": MECHANISMS}
                assert await closed(client) == b""
            assert of(node).counts.failures == 3

    run(test())


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_a_failure_is_answered_late_and_then_closed(tmp_path: Path, token: bytes, message: str) -> None:
    """The answer waits, not only the close: 58 comes after connection.failed.authentication.delay.ms."""

    async def test() -> None:
        async with secured(tmp_path, {"connection.failed.authentication.delay.ms": "120"}) as node:
            client = await connect(node)
            await handshake(client)
            began = time.monotonic()
            client.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
            client.send(ApiKey.METADATA, 9, {"topics": []})
            answer = await client.receive(ApiKey.SASL_AUTHENTICATE, 2)
            assert time.monotonic() - began > 0.11  # the node has another clock
            assert answer["error_code"] == 58 and answer["error_message"] == message
            assert await closed(client) == b""

    run(test())


def upsertion(name: str, mechanism: scram.ScramMechanism, password: str, iterations: int = 4096) -> dict[str, Any]:
    salted = scram.salted_password(mechanism, password, b"salt", iterations)
    return {
        "name": name,
        "mechanism": mechanism.number,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": salted,
    }


async def alter(client: Client, *, deletions: Any = (), upsertions: Any = ()) -> dict[str, int]:
    asked = {"deletions": list(deletions), "upsertions": list(upsertions)}
    answer = await client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked)
    return {each["user"]: each["error_code"] for each in answer["results"]}


@pytest.mark.parametrize("mechanism", list(scram.BY_NAME.values()), ids=list(scram.BY_NAME))
def test_scram_with_users_of_the_metadata(tmp_path: Path, mechanism: scram.ScramMechanism) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            admin = await connect(node)
            await log_in(admin, "admin", "admin-secret")
            assert await alter(admin, upsertions=[upsertion("bob", mechanism, "bob-secret")]) == {"bob": 0}

            async def attempt(name: str, password: str) -> Any:
                client, here = await connect(node), ScramClient(mechanism, name, password, bytes(17))
                await handshake(client, mechanism.name)
                answer = await authenticate(client, here.first())
                assert answer["error_code"] == 0
                token = here.step(answer["auth_bytes"])
                assert token is not None
                answer = await authenticate(client, token)
                if answer["error_code"] == 0:
                    assert here.step(answer["auth_bytes"]) is None
                    await metadata(client)
                client.close()
                return answer["error_code"], answer["error_message"]

            assert await attempt("bob", "bob-secret") == (0, "")
            shapes = []
            for name in ("bob", "carol", "carol"):
                client = await connect(node)
                await handshake(client, mechanism.name)
                answer = await authenticate(client, ScramClient(mechanism, name, "x", bytes(17)).first())
                found = dict(part.split("=", 1) for part in answer["auth_bytes"].decode().split(","))
                shapes.append((len(found["s"]), found["i"], found["s"]))
                client.close()
            assert shapes[0][:2] == shapes[1][:2] and shapes[1] == shapes[2]
            wrong, unknown = await attempt("bob", "wrong"), await attempt("carol", "wrong")
            assert wrong == unknown and wrong[0] == 58  # nobody learns which names there are
            deletion = {"name": "bob", "mechanism": mechanism.number}
            assert await alter(admin, deletions=[deletion]) == {"bob": 0}
            assert (await attempt("bob", "bob-secret"))[0] == 58

    run(test())


def test_credentials_are_altered_and_described_as_by_kafka(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            admin = await connect(node)
            await log_in(admin, "admin", "admin-secret")
            one, two = scram.SHA_256, scram.SHA_512
            many = [
                upsertion("a", one, "x"),
                upsertion("b", one, "x"),
                upsertion("b", two, "x"),
                upsertion("", one, "x"),
                upsertion("c", one, "x", 4095),
                upsertion("d", one, "x", 16_385),
                upsertion("e", two, "x", 16_384),
                {**upsertion("f", one, "x"), "mechanism": 3},
                {**upsertion("g", one, "x"), "salted_password": b""},
            ]
            gone = [{"name": "h", "mechanism": 1}, {"name": "i", "mechanism": 0}]
            assert await alter(admin, deletions=gone, upsertions=many) == {
                "a": 0,
                "b": 92,
                "": 93,
                "c": 93,
                "d": 93,
                "e": 0,
                "f": 33,
                "g": 93,
                "h": 91,
                "i": 33,
            }

            async def described(*names: str) -> Any:
                users = [{"name": each} for each in names] or None
                answer = await admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": users})
                assert answer["error_code"] == 0
                return {
                    each["user"]: each["error_code"]
                    or [(info["mechanism"], info["iterations"]) for info in each["credential_infos"]]
                    for each in answer["results"]
                }

            assert await described() == {"a": [(1, 4096)], "e": [(2, 16_384)]}
            assert await described("a", "zz", "e", "e") == {"a": [(1, 4096)], "zz": 91, "e": 92}

    run(test())


def test_users_that_a_node_begins_with(tmp_path: Path) -> None:
    """KIP-900: records in bootstrap.checkpoint, which a new cluster writes into its log; once, and never again."""

    async def attempt(node: Node) -> int:
        client, here = await connect(node), ScramClient(scram.SHA_512, "root", "root-secret", bytes(17))
        await handshake(client, "SCRAM-SHA-512")
        token = here.step((await authenticate(client, here.first()))["auth_bytes"])
        assert token is not None
        answer = await authenticate(client, token)
        if answer["error_code"] == 0:
            assert await alter(client, deletions=[{"name": "root", "mechanism": 2}]) == {"root": 0}
        client.close()
        return int(answer["error_code"])

    async def test() -> None:
        directory = str(tmp_path / "data")
        user = parse_scram_argument("SCRAM-SHA-512=[name=root,password=root-secret]", bytes(17))
        records = [record_of(user.mechanism, user.name, user.credential)]
        chance = random.Random(1)
        format_directories(
            OsFileSystem(), [directory], directory, 1, "a-cluster-of-one-0000A", chance, 0, credentials=records
        )
        file = tmp_path / "data" / "bootstrap.checkpoint"
        assert b"root-secret" not in file.read_bytes() and file.stat().st_mode & 0o777 == 0o600
        for seed, expected in ((1, 0), (2, 58)):
            async with running(directory, {**SETTINGS, "log.dirs": directory}, seed=seed) as node:
                assert await attempt(node) == expected

    run(test())


# Limits before a client is known.


def test_a_large_frame_before_the_login_is_not_waited_for(tmp_path: Path) -> None:
    """CVE-2022-34917: sasl.server.max.receive.size is looked at where the length is read."""

    async def test() -> None:
        patient = {"ottla.login.timeout.ms": "600000"}
        async with secured(tmp_path, {f"{PREFIX}sasl.server.max.receive.size": "1000", **patient}) as node:
            for prefix in (b"", b"shaken"):
                client = await connect(node)
                if prefix:
                    await handshake(client)
                client.writer.write(struct.pack(">i", 1001) + b"\0\x24\0\2")
                assert await closed(client) == b""
            client = await connect(node)
            await log_in(client)
            asked = {"topics": [{"name": "a" * 200, "topic_id": None} for _ in range(10)]}
            assert len((await client.ask(ApiKey.METADATA, 9, asked))["topics"]) == 1

    run(test())


def test_who_does_not_log_in_is_sent_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, {"ottla.login.timeout.ms": "100"}) as node:
            quiet, half, done = await connect(node), await connect(node), await connect(node)
            await handshake(half)
            await log_in(done)
            assert await closed(quiet) == b"" and await closed(half) == b""
            assert await metadata(done)

    run(test())


def test_a_connection_that_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither timers nor a cycle of references: thousands that reconnect are freed at once."""

    async def test() -> None:
        async with secured(tmp_path, {f"{PREFIX}connections.max.reauth.ms": "60000"}) as node:
            gc.collect()
            gc.disable()
            try:
                gone: list[Any] = []
                for done in (False, True):
                    client = await connect(node)
                    await (log_in(client) if done else handshake(client))
                    (connection,) = node.listeners[-1].connections
                    gone.append(weakref.ref(connection.login))
                    client.close()
                    del connection
                    await until(lambda: not node.listeners[-1].connections)
                await until(lambda: all(each() is None for each in gone))
            finally:
                gc.enable()

    run(test())


# Sessions (KIP-368).


def test_a_session_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, {f"{PREFIX}plain.connections.max.reauth.ms": "200"}) as node:
            for version in (0, 2):
                client = await connect(node)
                answer = await log_in(client, version=version)
                if version:
                    assert 0 < answer["session_lifetime"] <= 200
                await metadata(client)
                (connection,) = node.listeners[-1].connections
                await until(lambda connection=connection: connection.login.intercepts)  # type: ignore[misc]
                client.send(ApiKey.METADATA, 9, {"topics": []})
                assert await closed(client) == b""
                await until(lambda: not node.listeners[-1].connections)
            assert of(node).counts.expired == 2

    run(test())


def test_a_session_goes_on_after_another_login(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, {f"{PREFIX}connections.max.reauth.ms": "60000"}) as node:
            client = await connect(node)
            assert 0 < (await log_in(client))["session_lifetime"] <= 60_000
            assert (await log_in(client))["error_code"] == 0
            assert (await handshake(client))["error_code"] == 34, "twice within a second"
            await metadata(client)
            assert of(node).counts.resuccesses == 1 and of(node).counts.successes == 1

    run(test())


def test_another_login_has_to_be_the_same_user_by_the_same_mechanism(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, {f"{PREFIX}connections.max.reauth.ms": "60000"}) as node:
            client = await connect(node)
            await log_in(client)
            answer = await log_in(client, "admin", "admin-secret")
            assert answer["error_code"] == 58
            message = "Cannot change principals during re-authentication from User.alice: User.admin"
            assert answer["error_message"] == message
            assert await closed(client) == b""

            client = await connect(node)
            await log_in(client)
            answer = await log_in(client, "alice", "wrong")
            assert answer["error_code"] == 58
            assert await closed(client) == b""

            client = await connect(node)
            await log_in(client)
            assert (await handshake(client, "SCRAM-SHA-256"))["error_code"] == 0
            client.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"n,,n=alice,r=abc"})
            assert await closed(client) == b""

            client = await connect(node)
            await log_in(client)
            await handshake(client)
            found = await client.ask(ApiKey.LIST_GROUPS, 3, {"states_filter": []})
            assert found["error_code"] == 34, "nothing else until it is done"
            assert await closed(client) == b""
            assert of(node).counts.refailures == 4 and of(node).counts.failures == 0

    run(test())


def test_a_token_ends_its_session(tmp_path: Path) -> None:
    """Without any setting, and down to nothing where it has expired within the skew of the clocks."""
    settings = {
        f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "ottla.sasl.oauthbearer.unsecured.tokens": "true",
    }

    def token(end_s: float, padding: int = 0) -> str:
        import base64
        import json

        parts = ({"alg": "none"}, {"sub": "bob", "exp": end_s, "scope": "x" * padding})
        return (
            ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + "."
        )

    async def test() -> None:
        async with secured(tmp_path, settings) as node:
            now_s = node.clock.now_ms() / 1000
            for end_s, least, most in ((now_s + 3600, 3_500_000, 3_600_000), (now_s - 5, 0, 0), (1e300, 1e13, 1e15)):
                client = await connect(node)
                await handshake(client, "OAUTHBEARER")
                answer = await authenticate(client, OAuthBearerClient(token(end_s)).first())
                assert answer["error_code"] == 0 and least <= answer["session_lifetime"] <= most
            client = await connect(node)
            await handshake(client, "OAUTHBEARER")  # of 40 KB: decoded in steps, checked in a thread
            answer = await authenticate(client, OAuthBearerClient(token(now_s + 60, 30_000)).first())
            assert answer["error_code"] == 0 and await metadata(client)
            client = await connect(node)
            await handshake(client, "OAUTHBEARER")
            answer = await authenticate(client, OAuthBearerClient("a.b.").first())
            assert answer["error_code"] == 0 and answer["auth_bytes"] == b'{"status":"invalid_token"}'
            answer = await authenticate(client, b"\x01")
            assert answer["error_code"] == 58 and answer["error_message"] == '{"status":"invalid_token"}'

    run(test())


# Users and quotas.


def test_quotas_are_those_of_the_user(tmp_path: Path) -> None:
    """What a client does before it is known is nobody's: quotas of anonymous users do not hold it up."""

    async def test() -> None:
        async with secured(tmp_path) as node:
            admin = await connect(node)
            await log_in(admin, "admin", "admin-secret")
            entries = [
                {
                    "entity": [{"entity_type": "user", "entity_name": name}],
                    "ops": [{"key": "request_percentage", "value": value, "remove": False}],
                }
                for name, value in (("ANONYMOUS", 0.0001), ("alice", 1000.0))
            ]
            answer = await admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})
            assert not any(each["error_code"] for each in answer["entries"])
            client = await connect(node)
            await versions(client)
            connection = list(node.listeners[-1].connections)[-1]
            assert connection.quotas is None
            await log_in(client)
            assert connection.quotas is not None and connection.quotas._user == "alice"
            assert not (await metadata(client))["throttle_time"]

    run(test())


# Settings.

NOT_ALONE = {
    "listeners": f"{NAME}://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:1",
    "node.id": "1",
    "process.roles": "broker,controller",
}


def test_a_node_that_is_alone_needs_no_login_of_its_own(tmp_path: Path) -> None:
    users = {
        name: text for name, text in SETTINGS.items() if "plain" not in name and "inter.broker.protocol" not in name
    }

    async def test() -> None:
        async with running(str(tmp_path), {**users, f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-256"}) as node:
            client = await connect(node)
            assert (await handshake(client, "SCRAM-SHA-256"))["error_code"] == 0

    run(test())


NO_KERBEROS = r"GSSAPI without a key|pip install \"ottla\[kerberos\]\""
"""With the package gssapi, and without it."""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({f"{PREFIX}sasl.enabled.mechanisms": "KERBEROS_V4"}, "does not support"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "GSSAPI"}, NO_KERBEROS),
        ({f"{PREFIX}sasl.enabled.mechanisms": None}, "which is Kafka's default"),
        ({f"{PREFIX}sasl.enabled.mechanisms": ""}, "is empty"),
        ({f"{PREFIX}plain.sasl.jaas.config": None, "sasl.jaas.config": PLAIN_USERS}, "without users"),
        ({f"{PREFIX}plain.sasl.jaas.config": "x.y.Z required;"}, "not known, and none is loaded"),
        ({f"{PREFIX}plain.sasl.server.callback.handler.class": "x.y.Z"}, "no class is loaded"),
        ({**NOT_ALONE, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}, "no name and password"),
        ({**NOT_ALONE, "sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "does not offer"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "has no keys to check tokens with"),
        (
            {
                f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
                f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security."
                "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
                f"{PREFIX}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
            },
            "tokens that nobody signed",
        ),
    ],
)
def test_a_listener_that_could_not_check_anybody_does_not_start(
    tmp_path: Path, changes: dict[str, str | None], why: str
) -> None:
    settings = {name: text for name, text in {**SETTINGS, **changes}.items() if text is not None}

    async def test() -> None:
        with pytest.raises(OttlaError, match=why) as refusal:
            async with running(str(tmp_path), settings):
                pass
        assert "secret" not in str(refusal.value)

    run(test())
    assert not list(tmp_path.iterdir())


KEYS = {f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}
OAUTH = f"{PREFIX}oauthbearer.sasl.oauthbearer."
WHOLE = {
    **KEYS,
    f"{OAUTH}jwks.endpoint.url": "https://issuer/keys",
    f"{OAUTH}expected.issuer": "https://issuer",
    f"{OAUTH}expected.audience": "kafka",
}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({f"{OAUTH}jwks.endpoint.url": "http://issuer/keys"}, "must be https"),
        ({f"{OAUTH}jwks.endpoint.url": "file:///etc/passwd"}, "is not of the form"),
        ({f"{OAUTH}jwks.endpoint.url": "https://user:secret@issuer/keys"}, "is not of the form"),
        ({f"{OAUTH}expected.issuer": None}, "tokens of any issuer"),
        ({f"{OAUTH}expected.audience": None}, "tokens of any audience"),
        ({f"{OAUTH}jwt.validator.class": "x.y.Z"}, "no class is loaded"),
    ],
)
def test_oauthbearer_fails_closed(tmp_path: Path, changes: dict[str, str | None], why: str) -> None:
    """CVE-2025-27817 (URLs), CVE-2026-33557 and CVE-2026-110985 (any token)."""
    settings = {name: text for name, text in {**SETTINGS, **WHOLE, **changes}.items() if text is not None}

    async def test() -> None:
        with pytest.raises(OttlaError, match=why):
            async with running(str(tmp_path), settings):
                pass

    run(test())
    assert not list(tmp_path.iterdir())


def test_only_the_nodes_own_file_says_whose_tokens_are_believed() -> None:
    """Not what a client altered over the network, which would count from the next start on."""
    config = ServerConfig.load(None, {**SETTINGS, **WHOLE, "log.dirs": "/nowhere"}, {})
    config.apply_dynamic(
        {}, {f"{OAUTH}expected.issuer": "https://other", f"{OAUTH}jwks.endpoint.url": "https://other/keys"}
    )
    assert sasl_listeners.rules(config, NAME).issuer == "https://issuer"
    assert sasl_listeners.jwks_settings(config, NAME).endpoint.url == "https://issuer/keys"


def test_a_listener_without_sasl_answers_out_of_place(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            assert await handshake(client) == {"error_code": 34, "mechanisms": []}
            assert (await authenticate(client, b"x"))["error_code"] == 34
            assert await metadata(client)

    run(test())


def test_frames_of_any_kind_before_the_login_end_nothing_but_their_connection(tmp_path: Path) -> None:
    """A fuzz with a fixed seed: whole and broken requests, in every state before the login."""
    chance = random.Random(31)
    seeds = [
        messages.encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, "t", {"mechanism": "SCRAM-SHA-256"}),
        messages.encode_request(ApiKey.SASL_HANDSHAKE, 0, 1, "t", {"mechanism": "PLAIN"}),
        messages.encode_request(ApiKey.SASL_AUTHENTICATE, 2, 1, "t", {"auth_bytes": b"n,,n=alice,r=abc"}),
        messages.encode_request(ApiKey.SASL_AUTHENTICATE, 0, 1, "t", {"auth_bytes": b"c=biws,r=abc,p=AAAA"}),
        messages.encode_request(ApiKey.API_VERSIONS, 0, 1, "t", {}),
        messages.encode_request(ApiKey.METADATA, 9, 1, "t", {"topics": []}),
        b"\0alice\0wrong",
        b"",
        b"\0",
    ]

    def mutated() -> bytes:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((0, 0, 1, 3))):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data)

    async def attack(node: Node) -> None:
        client = await connect(node)
        for _ in range(chance.randrange(1, 6)):
            data = mutated()
            size = chance.choice((len(data), len(data), len(data), len(data) + 1, -1, 1 << 30))
            client.writer.write(struct.pack(">i", size) + data)
        client.writer.write_eof()
        await closed(client)
        client.close()

    async def test() -> None:
        async with secured(tmp_path) as node:
            for _ in range(20):
                await asyncio.gather(*(attack(node) for _ in range(20)))
            client = await connect(node)
            assert (await log_in(client))["error_code"] == 0
            client.close()
            await until(lambda: not node.listeners[-1].connections)
            assert of(node).counts.successes == 1 and of(node).counts.failures > 50

    run(test())


# Over TLS.


def test_a_login_over_tls(tmp_path: Path) -> None:
    """SASL_SSL: the name of the login counts, whatever certificate the client has; limits hold as without TLS."""
    authority = Authority()
    name = "SASL_SSL"
    prefix = f"listener.name.{name.lower()}."
    certificate = tmp_path / "client.pem"
    certificate.write_text(authority.issue("mallory").pem())
    settings = {
        "listeners": f"{name}://127.0.0.1:0",
        "inter.broker.listener.name": name,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "connection.failed.authentication.delay.ms": "0",
        f"{prefix}sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": PLAIN_USERS,
        **ssl_settings(tmp_path / "tls", authority, authority.issue("node"), prefix, client_auth="requested"),
    }
    context = ssl.create_default_context(cadata=authority.pem)
    context.load_cert_chain(certificate)

    async def opened(node: Node) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", node.ports[name], limit=1 << 24, ssl=context))

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings) as node:
            client = await opened(node)
            await versions(client)
            (connection,) = node.listeners[-1].connections
            assert connection.principal == "User:ANONYMOUS"
            assert (await log_in(client))["error_code"] == 0
            assert connection.principal == "User:alice"
            assert (await metadata(client))["brokers"]
            wrong = await opened(node)
            assert (await log_in(wrong, "alice", "wrong"))["error_code"] == 58
            assert await closed(wrong) == b""
            early = await opened(node)
            early.send(ApiKey.METADATA, 9, {"topics": []})
            assert await closed(early) == b""

    run(test())


def test_slow_logins_hold_neither_the_loop_nor_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are threads for disks, and more: a produce with its fsync goes on meanwhile."""
    going = threading.Event()
    begun: list[str] = []
    step = PlainServer.step

    def slow(self: PlainServer, token: bytes) -> bytes:
        if b"alice" in token:
            begun.append(threading.current_thread().name)
            assert going.wait(60)
        return step(self, token)

    monkeypatch.setattr(PlainServer, "takes_long", lambda self, token: True)
    monkeypatch.setattr(PlainServer, "step", slow)

    async def test() -> None:
        async with secured(tmp_path, {"log.flush.interval.messages": "1"}) as node:
            admin = await connect(node)
            await log_in(admin, "admin", "admin-secret")
            await admin.create("t")
            clients = [await connect(node) for _ in range(3 * DISK_THREADS_MAX)]
            waiting = [asyncio.ensure_future(log_in(each, "alice", "alice-secret")) for each in clients]
            await until(lambda: begun)
            for _ in range(5):
                assert not (await admin.produce("t", batch(10)))["error_code"]
            assert not any(each.done() for each in waiting)
            going.set()
            await asyncio.gather(*waiting)
            assert {each.rpartition("_")[0] for each in begun} == {"ottla-login"} and len(begun) == len(clients)

    run(test())
