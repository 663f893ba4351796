"""StoreUserScramCredentials: credentials as another cluster has them, and who may not send them; readers of the
metadata log without an id."""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.client.config import ClientConfig
from ottla.errors import ErrorCode
from ottla.mirror.credentials import User
from ottla.mirror.users import SourceUsers
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import scram
from ottla.security.sasl.client import ScramClient
from ottla.server.node import Node
from ottla.testing.process import reserve
from tests.certificates import Authority, ssl_settings
from tests.unit.server.node import Client, running
from tests.unit.server.permits import rule
from tests.unit.server.security.test_authentication import NAME, SETTINGS, connect
from tests.unit.server.security.test_delegation_tokens import as_user, converse, create, login, password, with_tokens
from tests.unit.server.stub import run, until

STORE = ApiKey.STORE_USER_SCRAM_CREDENTIALS
SECRET = "pass of word"


def row(name: str = "carol", number: int = 1, iterations: int = 4096, **other: Any) -> dict[str, Any]:
    mechanism = scram.BY_NUMBER.get(number, scram.SHA_256)
    salted = scram.salted_password(mechanism, SECRET, b"salt", iterations)
    found = scram.credential(mechanism, salted, b"salt", iterations)
    return {"name": name, "mechanism": number, **found._asdict(), **other}


async def stored(client: Client, *rows: dict[str, Any]) -> list[int]:
    answer = await client.ask(STORE, 0, {"credentials": list(rows)})
    assert [(each["user"], each["mechanism"]) for each in answer["results"]] == [
        (each["name"], each["mechanism"]) for each in rows
    ]
    return [each["error_code"] for each in answer["results"]]


async def may_log_in(node: Node, name: str, mechanism: scram.ScramMechanism) -> bool:
    client = await connect(node)
    answer = await converse(client, ScramClient(mechanism, name, SECRET, bytes(17)), mechanism)
    client.close()
    return not answer["error_code"]


def test_a_stored_credential_lets_its_user_in_and_bad_rows_stand_alone(tmp_path: Path) -> None:
    bad, unknown = ErrorCode.unacceptable_credential, ErrorCode.unsupported_sasl_mechanism

    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            admin = await as_user(node, "admin")
            both = [row(), row(number=2, iterations=16_384)]
            assert await stored(admin, *both) == [0, 0]
            for mechanism in (scram.SHA_256, scram.SHA_512):
                assert await may_log_in(node, "carol", mechanism)
                kept = node.image.scram_credentials["carol", mechanism.number]
                assert (kept.salt, kept.stored_key) == (b"salt", both[mechanism.number - 1]["stored_key"])
            wrong = [
                (row(""), bad),
                (row("d", number=3), unknown),
                (row("d", iterations=4095), bad),
                (row("d", iterations=16_385), bad),
                (row("d", salt=b""), bad),
                (row("d", stored_key=b"x" * 31), bad),
                (row("d", server_key=b"x" * 64), bad),
                (row("d", number=2, stored_key=b"x" * 32), bad),
            ]
            for each, code in wrong:
                assert await stored(admin, each, row("good")) == [code, 0], each["name"]
            twice = ErrorCode.duplicate_resource
            assert await stored(admin, row("e"), row("e", number=2), row("e")) == [twice, 0, twice]
            assert {name for name, _ in node.image.scram_credentials} == {"carol", "good", "e"}
            # More rows than the controller decides on in one step.
            assert set(await stored(admin, *(row(f"u{n}", stored_key=bytes(32)) for n in range(700)))) == {0}
            rule(node, lambda operation, kind, name: False)
            refused = ErrorCode.cluster_authorization_failed
            assert await stored(admin, row("f"), row("g")) == [refused, refused]
            assert ("f", 1) not in node.image.scram_credentials

    run(test())


def test_keys_are_taken_only_where_tokens_are_given(tmp_path: Path) -> None:
    async def test() -> None:
        authority = Authority()
        more = {
            **ssl_settings(tmp_path / "tls", authority, authority.issue("node"), "listener.name.tls."),
            "listeners": f"OPEN://127.0.0.1:0,TLS://127.0.0.1:0,{NAME}://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": f"OPEN:PLAINTEXT,TLS:SSL,{NAME}:{NAME},CONTROLLER:PLAINTEXT",
        }
        async with with_tokens(tmp_path, more) as node:
            made = await create(await as_user(node, "alice"))
            by_token, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 0
            clients = [by_token]
            trusting = ssl.create_default_context(cadata=authority.pem)
            for name, context in (("OPEN", None), ("CONTROLLER", None), ("TLS", trusting)):
                streams = await asyncio.open_connection("127.0.0.1", node.ports[name], ssl=context, limit=1 << 24)
                clients.append(Client(*streams))
            for client in clients:
                assert await stored(client, row()) == [ErrorCode.security_disabled]
            assert not node.image.scram_credentials
            assert await stored(await as_user(node, "alice"), row()) == [0]

    run(test())


def test_a_broker_forwards_it_and_the_audit_log_has_no_key(tmp_path: Path) -> None:
    held = reserve(0)
    port = held.getsockname()[1]
    common = {
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{NAME}:{NAME},CONTROLLER:PLAINTEXT",
        "ottla.cluster.id": "Jk3UMx2zQ0y8oVh1mE5cRw",
        "ottla.audit.directory": str(tmp_path / "audit"),
    }
    controller = {
        **common,
        "process.roles": "controller",
        "node.id": "1",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
    }
    broker = {**SETTINGS, **common, "process.roles": "broker", "node.id": "2"}

    async def test() -> None:
        async with running(str(tmp_path / "1"), controller), running(str(tmp_path / "2"), broker) as node:
            admin = await as_user(node, "admin")
            who = {"client_software_name": "ottla-mirror", "client_software_version": "1"}
            assert STORE in {each["api_key"] for each in (await admin.ask(ApiKey.API_VERSIONS, 3, who))["api_keys"]}
            assert await stored(admin, row(), row("d", iterations=1)) == [0, ErrorCode.unacceptable_credential]
            await until(lambda: ("carol", 1) in node.image.scram_credentials)
            assert await may_log_in(node, "carol", scram.SHA_256)
            admin.close()

    run(test())
    held.close()
    lines = b"".join(each.read_bytes() for each in sorted((tmp_path / "audit").rglob("*")) if each.is_file())
    found = [each for each in lines.splitlines() if b"StoreUserScramCredentials" in each]
    assert any(b"user:carol" in each and b"User:admin" in each for each in found)
    assert any(b"user:d" in each and b"UNACCEPTABLE_CREDENTIAL" in each for each in found)
    for key in (row()["stored_key"], row()["server_key"]):
        assert key not in lines and key.hex().encode() not in lines and base64.b64encode(key) not in lines


def test_a_controller_that_lacks_it_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka that leads a mixed cluster: brokers hide the API, and refuse it."""

    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            others = {ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0)}
            monkeypatch.setattr(type(node.metadata), "controller_versions", others)
            admin = await as_user(node, "admin")
            who = {"client_software_name": "ottla-mirror", "client_software_version": "1"}
            keys = {each["api_key"] for each in (await admin.ask(ApiKey.API_VERSIONS, 3, who))["api_keys"]}
            assert STORE not in keys and ApiKey.LIST_CLIENTS in keys
            assert await stored(admin, row()) == [ErrorCode.unsupported_version]

    run(test())


def test_users_are_read_from_the_metadata_log(tmp_path: Path) -> None:
    """Again only what is new; and the reader is no observer of the quorum."""

    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            admin = await as_user(node, "admin")
            await stored(admin, row())
            users = SourceUsers(ClientConfig((f"127.0.0.1:{node.ports['CONTROLLER']}",)), node.cluster_id)
            found = await asyncio.to_thread(users.read)
            assert {each: kept.stored_key for each, kept in found.items()} == {
                User("carol", "SCRAM-SHA-256"): row()["stored_key"]
            }
            asked = {"deletions": [{"name": "carol", "mechanism": 1}], "upsertions": []}
            assert not (await admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked))["results"][0]["error_code"]
            await stored(admin, row("dave", number=2))
            assert set(await asyncio.to_thread(users.read)) == {User("dave", "SCRAM-SHA-512")}
            topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
            quorum = await admin.ask(ApiKey.DESCRIBE_QUORUM, 1, {"topics": [topic]})
            assert quorum["topics"][0]["partitions"][0]["observers"] == []
            users.close()
            other = SourceUsers(ClientConfig((f"127.0.0.1:{node.ports['CONTROLLER']}",)), "another")
            with pytest.raises(Exception, match="another cluster"):
                await asyncio.to_thread(other.read)
            other.close()

    run(test())
