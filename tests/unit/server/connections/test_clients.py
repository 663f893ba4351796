"""ListClients and DisconnectClients, APIs that Kafka does not have, and the commands behind which they are."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli import clients as command
from ottla.cli.exits import FAILED, MISUSED, OK
from ottla.cli.main import main
from ottla.errors import ErrorCode
from ottla.protocol.messages import OWN_API_MIN, ApiKey
from ottla.security.acls import Operation
from ottla.security.sasl import scram
from ottla.security.sasl.client import ScramClient
from ottla.server.api import RequestContext
from ottla.server.handlers.cluster import disconnect_clients, list_clients
from ottla.server.node import Node
from tests.unit.server.clients.test_telemetry import GET, PUSH, push
from tests.unit.server.listeners import test_tls
from tests.unit.server.node import Client, batch, fetch_values, running
from tests.unit.server.permits import rule
from tests.unit.server.security import test_authentication as logins
from tests.unit.server.stub import run, until

LIST, DISCONNECT = ApiKey.LIST_CLIENTS, ApiKey.DISCONNECT_CLIENTS
OWN = {
    LIST, DISCONNECT, ApiKey.DESCRIBE_LOST_LETTERS, ApiKey.STORE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_SHARE_PARTITIONS,
}  # fmt: skip
ALL = {"principal": None, "client_id": None}


async def introduced(node: Node, name: str = "librdkafka") -> Client:
    client = await Client.connect(node)
    await client.ask(ApiKey.API_VERSIONS, 3, {"client_software_name": name, "client_software_version": "2.5"})
    return client


async def closed(client: Client) -> None:
    async with asyncio.timeout(60):
        assert await client.reader.read() == b""
    client.close()


def test_only_ottlas_own_commands_hear_of_them(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            for version in range(5):
                for name in ("ottla-cli", "ottla-console", "ottla-mirror", "ottla", "apache-kafka-java"):
                    who = {"client_software_name": name, "client_software_version": "1"}
                    answer = await client.ask(ApiKey.API_VERSIONS, version, who)
                    own = {each["api_key"] for each in answer["api_keys"] if each["api_key"] >= OWN_API_MIN}
                    assert own == (OWN if name.startswith("ottla-") and version >= 3 else set())
            client.close()

    run(case())


def test_a_connection_is_described(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            asker, other = await Client.connect(node), await introduced(node)
            await other.create("t")
            await other.produce("t", batch(5000))
            got = await other.ask(GET, 0, {"client_instance_id": None})
            assert not (await other.ask(PUSH, 0, push(got)))["error_code"]
            answer = await asker.ask(LIST, 0, ALL)
            assert answer["node_id"] == node.node_id and len(answer["clients"]) == 2
            (row,) = [each for each in answer["clients"] if each["software_name"] == "librdkafka"]
            assert row["principal"] == "User:ANONYMOUS" and row["client_id"] == "test"
            assert row["software_version"] == "2.5"
            host, port = other.writer.get_extra_info("sockname")
            assert (row["host"], row["port"]) == (host, port)
            assert row["listener"] == row["security_protocol"] == "PLAINTEXT"
            assert row["tls_version"] is row["tls_cipher"] is row["mechanism"] is None
            assert row["bytes_in"] > 5000 and 0 < row["bytes_out"] < 10_000
            assert 0 <= row["idle_ms"] <= row["connected_ms"] + 50
            assert row["client_instance_id"] == got["client_instance_id"] and row["pushed_metrics"] == 1
            (unnamed,) = [each for each in answer["clients"] if each is not row]
            assert unnamed["client_id"] is None and unnamed["software_name"] == "unknown"
            assert (await asker.ask(LIST, 0, {**ALL, "client_id": "test"}))["clients"][0]["port"] == port
            assert (await asker.ask(LIST, 0, {**ALL, "principal": "User:alice"}))["clients"] == []
            other.close()
            await until(lambda: len(node.listeners[0].connections) == 1)
            assert len((await asker.ask(LIST, 0, ALL))["clients"]) == 1
            asker.close()

    run(case())


def test_the_producer_of_a_connection_is_named(tmp_path: Path) -> None:
    """Also where what follows is answered by the shortcut; not one whose batch was refused."""

    async def case() -> None:
        async with running(str(tmp_path)) as node:
            asker, plain, other = await Client.connect(node), await introduced(node), await introduced(node)
            await plain.create("t")
            await plain.produce("t", batch())
            only = {**ALL, "only_producers": True}
            assert (await asker.ask(LIST, 0, only))["clients"] == []
            for sequence in range(3):
                await other.produce("t", batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
            refused = await plain.produce("t", batch(producer_id=7, producer_epoch=0, base_sequence=9))
            assert refused["error_code"] == ErrorCode.out_of_order_sequence_number
            (row,) = (await asker.ask(LIST, 0, only))["clients"]
            assert (row["producer_id"], row["client_id"], row["software_name"]) == (7, "test", "librdkafka")
            assert row["port"] == other.writer.get_extra_info("sockname")[1]
            rows = (await asker.ask(LIST, 0, ALL))["clients"]
            assert sorted(each["producer_id"] for each in rows) == [-1, -1, 7]
            for each in (asker, plain, other):
                each.close()

    run(case())


def test_tls_and_users(tmp_path: Path) -> None:
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}

    async def case() -> None:
        async with running(str(tmp_path / "data"), {**test_tls.settings(tmp_path), **listeners}) as node:
            asker, alice = await Client.connect(node), await test_tls.connect(node, tmp_path)
            await alice.ask(ApiKey.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"})
            (row,) = (await asker.ask(LIST, 0, {**ALL, "client_id": "test"}))["clients"]
            assert row["listener"] == row["security_protocol"] == "SSL" and row["tls_version"] == "TLSv1.3"
            assert row["tls_cipher"].startswith("TLS_") and row["principal"] == f"User:{test_tls.ALICE_SUBJECT}"
            answer = await asker.ask(DISCONNECT, 0, {"principal": row["principal"], "client_id": None})
            assert answer["closed"] == 1
            await closed(alice)
            asker.close()

    run(case())


def test_connections_are_closed_once_what_they_asked_for_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.handlers.cluster.disconnect_clients.ANSWER_SECONDS_MAX", 60.0)

    async def case() -> None:
        async with running(str(tmp_path)) as node:
            asker, other, stays = await introduced(node, "asker"), await introduced(node), await Client.connect(node)
            await other.create("t")
            answer = await asker.ask(DISCONNECT, 0, ALL)
            assert answer["error_code"] == ErrorCode.invalid_request and answer["closed"] == 0
            other.send(ApiKey.FETCH, 12, fetch_values("t", 0, max_wait=300))
            await until(lambda: any(each._pending for each in node.listeners[0].connections))
            answer = await asker.ask(DISCONNECT, 0, {**ALL, "client_id": "test"})
            assert answer["closed"] == 1  # not the asker's own, which has the name as well
            assert not (await other.receive(ApiKey.FETCH, 12))["error_code"]
            await closed(other)
            assert (await asker.ask(DISCONNECT, 0, {**ALL, "principal": "User:nobody"}))["closed"] == 0
            assert (await asker.ask(DISCONNECT, 0, {**ALL, "principal": "User:ANONYMOUS"}))["closed"] == 1
            await closed(stays)
            asker.close()

    run(case())


def test_an_answer_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.handlers.cluster.disconnect_clients.ANSWER_SECONDS_MAX", 0.01)

    async def case() -> None:
        async with running(str(tmp_path)) as node:
            asker, other = await Client.connect(node), await introduced(node)
            await other.create("t")
            other.send(ApiKey.FETCH, 12, fetch_values("t", 0, max_wait=600_000))
            await until(lambda: any(each._pending for each in node.listeners[0].connections))
            assert (await asker.ask(DISCONNECT, 0, {**ALL, "client_id": "test"}))["closed"] == 1
            await closed(other)
            await until(lambda: len(node.listeners[0].connections) == 1)
            asker.close()

    run(case())


def test_rights(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            client, other = await Client.connect(node), await introduced(node)
            for key, operation in ((LIST, Operation.DESCRIBE), (DISCONNECT, Operation.ALTER)):
                rules = rule(node, lambda *asked: False)
                answer = await client.ask(key, 0, {**ALL, "client_id": "test"})
                assert answer["error_code"] == ErrorCode.cluster_authorization_failed, key
                assert not answer.get("clients") and not answer.get("closed")
                assert {each.operation for each in rules.asked} == {operation}
            assert len(node.listeners[0].connections) == 2
            for each in (client, other):
                each.close()

    run(case())


def test_many_connections_are_looked_at_in_steps(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            clients = [await Client.connect(node) for _ in range(3)]
            await until(lambda: len(node.listeners[0].connections) == 3)
            context = RequestContext(node, LIST, 0)
            everybody = SimpleNamespace(principal="User:ANONYMOUS", client_id=None, only_producers=False)
            assert len([*list_clients.handle(context, everybody)]) == 6
            assert len([*disconnect_clients.handle(context, everybody)]) == 6
            for each in clients:
                await closed(each)

    run(case())


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def said(*words: str, code: int = OK) -> str:
        assert await asyncio.to_thread(main, list(words)) == code, capsys.readouterr().err
        return capsys.readouterr().out

    async def case() -> None:
        async with running(str(tmp_path)) as node:
            monkeypatch.setenv("OTTLA_BOOTSTRAP", f"127.0.0.1:{node.ports['PLAINTEXT']}")
            client = await introduced(node)
            head, *rows = (await said("client", "list")).splitlines()
            assert head.split()[:5] == ["NODE", "USER", "CLIENT", "SOFTWARE", "ADDRESS"]
            assert [row.split()[:5] for row in rows if "librdkafka" in row] == [
                [str(node.node_id), "ANONYMOUS", "test", "librdkafka", "2.5"]
            ]
            (found,) = json.loads(await said("client", "list", "--client-id", "test", "--json"))
            assert found["node"] == node.node_id and found["user"] == "ANONYMOUS" and found["software"] == "librdkafka"
            assert found["bytes_in"] > 0 and found["tls_version"] is None and found["connected_seconds"] >= 0
            assert json.loads(await said("client", "list", "--user", "alice", "--json")) == []
            assert await said("user", "disconnect", "alice") == "user alice: 0 connections closed\n"
            assert (
                await said("client", "disconnect", "test", "--user", "alice") == "client 'test': 0 connections closed\n"
            )
            assert await said("client", "disconnect", "test") == "client 'test': 1 connection closed\n"
            await closed(client)
            client = await introduced(node)
            text = await said("user", "disconnect", "User:ANONYMOUS", "--json")
            assert json.loads(text) == [{"user": "ANONYMOUS", "client_id": None, "node": node.node_id, "closed": 1}]
            await closed(client)
            await said("client", "list", "--node", "77", code=FAILED)
            await said("user", "disconnect", "*", code=MISUSED)

    run(case())


@pytest.mark.parametrize(("answer", "code"), [("y\n", OK), ("no\n", FAILED), ("", FAILED)])
def test_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    asked: list[Any] = []

    def ask(*what: Any) -> dict[str, int]:
        asked.append(what)
        return {"node_id": 1, "closed": 2}

    monkeypatch.setattr(command, "_brokers", lambda bootstrap, node: [SimpleNamespace(id=1)])
    monkeypatch.setattr(command, "_ask", ask)
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["user", "disconnect", "alice"]) == code
    assert bool(asked) == (code == OK)
    asked.clear()
    assert main(["user", "disconnect", "alice", "--yes"]) == OK and asked


async def logged_in(client: Client, name: str, password: str) -> ErrorCode:
    """What a login by SCRAM is answered."""
    here = ScramClient(scram.SHA_256, name, password, bytes(17))
    await logins.handshake(client, scram.SHA_256.name)
    token = here.step((await logins.authenticate(client, here.first()))["auth_bytes"])
    assert token is not None
    return ErrorCode((await logins.authenticate(client, token))["error_code"])


def test_a_deleted_user_is_disconnected_and_stays_away(tmp_path: Path) -> None:
    """Deleted, it is connected still; disconnected, it can no longer log in."""

    async def case() -> None:
        async with logins.secured(tmp_path) as node:
            admin, bob = await logins.connect(node), await logins.connect(node)
            await logins.log_in(admin, "admin", "admin-secret")
            made = logins.upsertion("bob", scram.SHA_256, "bob-secret")
            assert await logins.alter(admin, upsertions=[made]) == {"bob": 0}
            await bob.ask(ApiKey.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"})
            assert await logged_in(bob, "bob", "bob-secret") == ErrorCode.none
            gone = {"name": "bob", "mechanism": scram.SHA_256.number}
            assert await logins.alter(admin, deletions=[gone]) == {"bob": 0}
            who = {"principal": "User:bob", "client_id": None}
            (row,) = (await admin.ask(LIST, 0, who))["clients"]
            assert row["mechanism"] == "SCRAM-SHA-256" and row["client_id"] == "test"
            assert (await admin.ask(DISCONNECT, 0, who))["closed"] == 1
            await closed(bob)
            again = await logins.connect(node)
            assert await logged_in(again, "bob", "bob-secret") == ErrorCode.sasl_authentication_failed
            again.close()
            assert (await admin.ask(LIST, 0, who))["clients"] == []
            admin.close()

    run(case())
