"""No view of a buffer that all connections share outlives its frame (CVE-2026-35554: a buffer that was used again while
records lay in it, which then were another topic's): here whatever was received is overwritten at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla import tls_network
from ottla.protocol.messages import ApiKey
from ottla.server.connections.connection import Connection
from ottla.server.listeners import listener, node_tls
from ottla.tls_connection import TlsConnection
from tests.unit.server.listeners.test_tls import connect, settings
from tests.unit.server.node import Client, batch, produce_values, running
from tests.unit.server.stub import run

POISON = b"\xa5" * 4096


def poison(buffer: memoryview | bytearray, size: int) -> None:
    for start in range(0, size, len(POISON)):
        piece = POISON[: size - start]
        buffer[start : start + len(piece)] = piece


class Poisoned(Connection):
    __slots__ = ()

    def buffer_updated(self, nbytes: int) -> None:
        shared = self._own is None
        received = len(self._head) + nbytes
        super().buffer_updated(nbytes)
        if shared:
            poison(self._listener.receive_buffer, received)


class PoisonedTls(TlsConnection):
    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        poison(self._network.buffer, nbytes)


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "Connection", Poisoned)
    monkeypatch.setattr(node_tls, "SecuredConnection", type("PoisonedSecured", (Poisoned,), {"secured": _known}))
    monkeypatch.setattr(tls_network, "TlsConnection", PoisonedTls)


def _known(connection: Any, peer: str | None) -> None:
    connection.principal = f"User:{peer}"


async def work(client: Client) -> None:
    """Requests that are answered later, that leave something in memory, and that come in pieces, one behind another."""
    for topic in ("a", "b"):
        await client.create(topic, {"cleanup.policy": "compact,delete"})
    batches = [batch(size, count=count) for size in (10, 900, 60_000) for count in (1, 3)]
    for number, records in enumerate(batches):
        for topic in ("a", "b"):
            client.send(ApiKey.PRODUCE, 9, produce_values(topic, records, (-1, 1, -1)[number % 3], 0))
    for _ in range(2 * len(batches)):
        answer = await client.receive(ApiKey.PRODUCE, 9)
        assert not answer["responses"][0]["partition_responses"][0]["error_code"]
    wanted = {"key_type": 0, "coordinator_keys": ["group"]}
    while (await client.ask(ApiKey.FIND_COORDINATOR, 4, wanted))["coordinators"][0]["error_code"]:
        pass
    row = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": "kept" * 9}
    asked = {
        "group_id": "group",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [row]} for topic in ("a", "b")],
    }
    while any(
        each["partitions"][0]["error_code"] for each in (await client.ask(ApiKey.OFFSET_COMMIT, 8, asked))["topics"]
    ):
        pass
    groups = {"groups": [{"group_id": "group", "topics": None}], "require_stable": False}
    (found,) = (await client.ask(ApiKey.OFFSET_FETCH, 8, groups))["groups"]
    assert {each["name"]: each["partitions"][0]["metadata"] for each in found["topics"]} == dict.fromkeys(
        "ab", "kept" * 9
    )
    whole = b"".join(batches)
    for topic in ("a", "b"):
        fetched = await client.fetch(topic, 0, max_bytes=1 << 24)
        assert without_places(fetched["records"]) == without_places(whole)
    names = {each["name"] for each in (await client.ask(ApiKey.METADATA, 9, {"topics": None}))["topics"]}
    assert names == {"a", "b", "__consumer_offsets"}


def without_places(data: bytes) -> list[bytes]:
    """The batches from their checksum on: the node writes offsets and epochs before it."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found.append(data[17:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("over_tls", [False, True])
def test_what_was_received_is_not_looked_at_again(tmp_path: Path, over_tls: bool) -> None:
    async def test() -> None:
        more = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
        secured = settings(tmp_path) if over_tls else {}
        async with running(str(tmp_path / "data"), {**secured, **more}) as node:
            client = await (connect(node, tmp_path) if over_tls else Client.connect(node))
            await asyncio.wait_for(work(client), 60)
            (connection,) = node.listeners[-1].connections
            assert isinstance(connection, Poisoned)
            client.close()

    run(test())
