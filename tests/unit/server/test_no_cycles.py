"""Requests are freed with their last reference. What they leave in reference cycles stays, with their answers, until
the collector runs, which with a node's thresholds may be millions of objects later."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.clock import SystemClock
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import build_batch
from ottla.server import api
from ottla.server.handlers import TABLE
from tests import kio_oracle
from tests.unit.server.counting import FEW_SHARDS, TOPIC, filled, loaded, request
from tests.unit.server.node import Client, fetch_values, produce_values, running

TIMES = 8
Once = Callable[[], Awaitable[Any]]


def on_a_node(directory: Path, test: Callable[[Any, Client], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        more = {**FEW_SHARDS, "group.initial.rebalance.delay.ms": "0", **settings}
        async with running(str(directory), more) as node:
            client = await Client.connect(node)
            await client.create(TOPIC)
            for kind, key in ((0, "g"), (1, "x"), (2, "g:AAAAAAAAAAAAAAAAAAAAAA:0")):
                await client.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": kind, "coordinator_keys": [key]})
            await loaded(node)
            await test(node, client)
            client.writer.close()

    uvloop.run(asyncio.wait_for(run(), 300))  # transports of asyncio itself are cycles


async def left_by(once: Once) -> float:
    """Objects in cycles that each call leaves."""
    for _ in range(3):  # what is made once
        await once()
    await asyncio.sleep(0)
    gc.disable()
    gc.freeze()  # what is here already is not looked at: after other tests that is much
    try:
        for _ in range(TIMES):
            await once()
        await asyncio.sleep(0.01)  # callbacks of closed connections
        return gc.collect() / TIMES
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: ApiKey(key).name.lower())
def test_requests_of_every_api(tmp_path: Path, key: int) -> None:
    version = TABLE[key].max_version
    api.load(key)
    cls = kio_oracle.request_class(key, version)
    frames = [request(key, version, filled(cls, (), known)) for known in (True, False)]

    async def test(node: Any, client: Client) -> None:
        for frame in frames:

            async def once(frame: bytes = frame) -> None:
                nonlocal client
                try:
                    client.writer.write(frame)
                    size = int.from_bytes(await client.reader.readexactly(4), "big")
                    await client.reader.readexactly(size)
                except (asyncio.IncompleteReadError, ConnectionError):  # refused as a whole
                    client.writer.close()
                    client = await Client.connect(node)

            assert await left_by(once) < 1

    on_a_node(tmp_path, test)


def reset(client: Client) -> None:
    """End its connection at once; one that is closed is kept for its answers."""
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


def batch() -> bytes:
    return bytes(build_batch([(SystemClock().now_ms(), None, b"v", ())]))


@pytest.mark.parametrize("flush", [{}, {"log.flush.interval.messages": "1"}], ids=["cached", "flushed"])
def test_fetches_that_wait(tmp_path: Path, flush: dict[str, str]) -> None:
    """For records that come, for nothing, and until their client is gone; beside produce requests that wait too."""

    async def test(node: Any, client: Client) -> None:
        producer = await Client.connect(node)
        end = 0

        async def asked(client: Client) -> None:
            client.send(ApiKey.FETCH, 12, fetch_values(TOPIC, end, max_wait=60_000))
            waiters = node.replicas.find(TOPIC, 0).waiters
            while not waiters:  # noqa: ASYNC110  nothing says so
                await asyncio.sleep(0)

        async def served() -> None:
            nonlocal end
            await asked(client)
            await producer.produce(TOPIC, batch())
            end += 1
            answer = await client.receive(ApiKey.FETCH, 12)
            assert answer["responses"][0]["partitions"][0]["records"]

        async def in_vain() -> None:
            answer = await client.ask(ApiKey.FETCH, 12, fetch_values(TOPIC, end, max_wait=1))
            assert not answer["responses"][0]["partitions"][0]["records"]

        async def lost() -> None:
            other = await Client.connect(node)
            await asked(other)
            reset(other)
            while node.replicas.find(TOPIC, 0).waiters:  # noqa: ASYNC110
                await asyncio.sleep(0)

        for once in (served, in_vain, lost):
            assert await left_by(once) < 1, once.__name__

    on_a_node(tmp_path, test, **flush)


def test_a_produce_request_that_waits_for_two_logs(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        await client.create("two", partitions=2)

        async def once() -> None:
            values = produce_values("two", batch())
            values["topic_data"][0]["partition_data"].append({"index": 1, "records": batch()})
            answer = await client.ask(ApiKey.PRODUCE, 9, values)
            found = answer["responses"][0]["partition_responses"]
            assert [each["error_code"] for each in found] == [0, 0]

        assert await left_by(once) < 1

    on_a_node(tmp_path, test, **{"log.flush.interval.messages": "1"})


def test_a_client_with_a_quota_that_leaves(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
        entries = [{"entity": [{"entity_type": "client-id", "entity_name": "test"}], "ops": ops}]
        await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})

        async def once() -> None:
            other = await Client.connect(node)
            await other.produce(TOPIC, batch())
            assert any(each.quotas for listener in node.listeners for each in listener.connections)
            reset(other)
            while sum(len(listener.connections) for listener in node.listeners) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0)

        assert await left_by(once) < 1

    on_a_node(tmp_path, test)


def test_members_that_wait_for_each_other(tmp_path: Path) -> None:
    """A classic rebalance of two: both join, both get their assignments."""
    joining = {
        "group_id": "g",
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }

    async def test(node: Any, client: Client) -> None:
        clients = [client, await Client.connect(node)]
        ids = []
        for each in clients:
            refused = await each.ask(ApiKey.JOIN_GROUP, 5, {**joining, "member_id": ""})
            ids.append(refused["member_id"])

        async def once() -> None:
            for each, member_id in zip(clients, ids, strict=True):
                each.send(ApiKey.JOIN_GROUP, 5, {**joining, "member_id": member_id})
            joined = [await each.receive(ApiKey.JOIN_GROUP, 5) for each in clients]
            for each, found in zip(clients, joined, strict=True):
                given = [{"member_id": member_id, "assignment": b"a"} for member_id in ids]
                values = {
                    "group_id": "g",
                    "generation_id": found["generation_id"],
                    "member_id": found["member_id"],
                    "group_instance_id": None,
                    "assignments": given if found["leader"] == found["member_id"] else (),
                }
                each.send(ApiKey.SYNC_GROUP, 3, values)
            for each in clients:
                await each.receive(ApiKey.SYNC_GROUP, 3)

        assert await left_by(once) < 1

    on_a_node(tmp_path, test)
