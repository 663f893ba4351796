"""What a client that is not known can cost a node: memory, time, lines of the log."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.logs import JsonFormatter, TextFormatter
from ottla.protocol.messages import ApiKey
from ottla.security.sasl.client import PlainClient
from ottla.security.sasl.plain import PlainServer
from ottla.server import dispatch
from ottla.server.handlers.security import alter_user_scram_credentials
from ottla.server.listeners.listener import REFUSALS_PER_SECOND_MAX
from ottla.server.security.authentication import REFUSED_BYTES_MAX
from tests.unit.server.node import Client, batch, produce_values, running
from tests.unit.server.security.test_authentication import (
    NAME,
    PREFIX,
    authenticate,
    closed,
    connect,
    handshake,
    log_in,
    metadata,
    of,
    secured,
    versions,
)
from tests.unit.server.stub import run, until


def rows(count: int) -> bytes:
    """A Metadata request of so many topics without names, two bytes each."""
    head = struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1) + b"\0"
    counted = bytes([count + 1 & 127 | 128, count + 1 >> 7 & 127 | 128, count + 1 >> 14])
    body = head + counted + b"\1\0" * count + bytes(4)
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("is_again", [False, True])
def test_a_long_request_during_the_login_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_again: bool
) -> None:
    """Its answer would have a row with an error for each of its rows: 20 MB and half a second for a stranger."""
    begun: list[int] = []
    whole = dispatch.begin

    def begin(node: Any, connection: Any, frame: memoryview) -> Any:
        begun.append(len(frame))
        return whole(node, connection, frame)

    monkeypatch.setattr(dispatch, "begin", begin)

    async def test() -> None:
        async with secured(tmp_path, {f"{PREFIX}connections.max.reauth.ms": "60000"}) as node:
            client = await connect(node)
            if is_again:
                await log_in(client)
            await handshake(client)
            client.writer.write(rows(200_000))
            assert await closed(client) == b""
            assert max(begun) < REFUSED_BYTES_MAX
            assert of(node).counts.refailures + of(node).counts.failures == 1
            client = await connect(node)
            await handshake(client)
            client.writer.write(rows(1500))  # as Kafka answers it
            assert (await client.receive(ApiKey.METADATA, 9))["topics"][0]["error_code"] == 34
            assert await closed(client) == b""

    run(test())


def test_a_large_request_right_behind_the_login(tmp_path: Path) -> None:
    """It is one of a client that is known, whose frames have another limit."""

    async def test() -> None:
        async with secured(tmp_path, {f"{PREFIX}sasl.server.max.receive.size": "1000"}) as node:
            admin = await connect(node)
            await log_in(admin)
            await admin.create("t")
            client = await connect(node)
            client.send(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            client.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": PlainClient("alice", "alice-secret").first()})
            client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(200_000), 1, 0))
            assert (await client.receive(ApiKey.SASL_HANDSHAKE, 1))["error_code"] == 0
            assert (await client.receive(ApiKey.SASL_AUTHENTICATE, 2))["error_code"] == 0
            answer = await client.receive(ApiKey.PRODUCE, 9)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0

    run(test())


def test_nothing_behind_a_failed_login_is_handled(tmp_path: Path) -> None:
    """Requests that a client sends without waiting for the answer to its token."""

    async def test() -> None:
        async with secured(tmp_path) as node:
            admin = await connect(node)
            await log_in(admin)
            for password, topics in (("wrong", 0), ("alice-secret", 1)):
                client = await connect(node)
                client.send(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
                client.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": PlainClient("alice", password).first()})
                topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
                asked = {"topics": [topic], "timeout": 1000, "validate_only": False}
                client.send(ApiKey.CREATE_TOPICS, 7, asked)
                client.writer.write_eof()
                await closed(client)
                assert len((await admin.ask(ApiKey.METADATA, 9, {"topics": None}))["topics"]) == topics

    run(test())


def test_a_flood_of_bad_bytes_does_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def attack(node: Any, port: str) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", node.ports[port]))
        client.writer.write(struct.pack(">i", -5))
        await closed(client)
        client.close()

    async def test() -> None:
        more = {"listeners": f"{NAME}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
        async with secured(tmp_path, more) as node:
            began = asyncio.get_running_loop().time()
            for port in (NAME, "PLAINTEXT"):
                for _ in range(10):
                    await asyncio.gather(*(attack(node, port) for _ in range(20)))
            seconds = int(asyncio.get_running_loop().time() - began) + 2
            lines = [each for each in caplog.records if each.getMessage() == "closing a connection"]
            assert 2 <= len(lines) <= 2 * REFUSALS_PER_SECOND_MAX * seconds
            assert len(lines) < 400
            told = sum(each.ottla_fields.get("not_logged", 0) for each in lines)  # type: ignore[attr-defined]
            left = sum(listener._refusals[2] for listener in node.listeners)
            assert len(lines) + told + left == 400
            client = await connect(node)
            await versions(client)
            await log_in(client)
            assert await metadata(client)

    run(test())


def test_connections_of_one_address_are_limited_before_they_log_in(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, {"max.connections.per.ip": "3"}) as node:
            held = [await connect(node) for _ in range(3)]
            for each in held:
                await versions(each)
            assert await closed(await connect(node)) == b""
            held.pop().close()
            await until(lambda: len(node.listeners[-1].connections) == 2)
            assert (await log_in(await connect(node)))["error_code"] == 0

    run(test())


def test_nobody_but_the_owner_reads_the_metadata(tmp_path: Path) -> None:
    """Salted passwords, and dynamic settings in the clear, are in the log and in the snapshots of the metadata."""
    directory = tmp_path / "__cluster_metadata-0"

    async def test() -> None:
        async with running(str(tmp_path)):
            assert directory.stat().st_mode & 0o777 == 0o700
        directory.chmod(0o755)
        async with running(str(tmp_path), seed=2):
            assert directory.stat().st_mode & 0o777 == 0o750

    run(test())


def test_a_handler_that_fails_shows_nothing_of_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An internal error is logged with its traceback, and that of a token that was sent is neither there nor told."""
    canary = "cAnArY-7d1f"

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    async def test() -> None:
        async with secured(tmp_path) as node:
            admin = await connect(node)
            await log_in(admin, "admin", "admin-secret")
            monkeypatch.setattr(alter_user_scram_credentials, "forwarded", fails)
            upsertion = {
                "name": "ann",
                "mechanism": 1,
                "iterations": 4096,
                "salt": canary.encode(),
                "salted_password": canary.encode(),
            }
            asked = {"deletions": [], "upsertions": [upsertion]}
            answer = await admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked)
            monkeypatch.setattr(PlainServer, "step", fails)
            client = await connect(node)
            await handshake(client)
            refused = await authenticate(client, f"\0alice\0{canary}".encode())
            assert refused["error_code"] == ErrorCode.unknown_server_error
            monkeypatch.undo()
            client.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": PlainClient("alice", "alice-secret").first()})
            assert await closed(client) == b"", "nobody tries again from the middle of an exchange"
            said = f"{answer} {refused}".encode()
            shown = "".join(map(TextFormatter().format, caplog.records)) + "".join(
                map(JsonFormatter().format, caplog.records)
            )
            assert shown.count("RuntimeError: a bug") >= 4
            assert canary not in shown and canary.encode() not in said

    run(test())
