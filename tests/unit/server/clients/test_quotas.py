"""Clients are held to their quotas: what they are told, that they are not read, and that others do not notice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.server import dispatch
from ottla.server.clients import quotas
from ottla.server.clients.quotas import throttle_offset
from ottla.server.node import Node
from tests.unit.server import stub
from tests.unit.server.node import Client, batch, fetch_values, produce_values, running

Names = Sequence[tuple[str, str | None]]

CLIENT: Names = [("client-id", "test")]
"""The client id of `Client`."""

RATES = {"producer_byte_rate": 10_000.0, "consumer_byte_rate": 10_000.0}


async def alter(client: Client, names: Names, ops: Mapping[str, float | None], *, validate_only: bool = False) -> Any:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in names],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops.items()],
    }
    asked = {"entries": [entry], "validate_only": validate_only}
    answer = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, asked)
    return answer["entries"][0]["error_code"], answer["entries"][0]["error_message"]


async def described(client: Client) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    return {
        tuple((part["entity_type"], part["entity_name"]) for part in entry["entity"]): {
            each["key"]: each["value"] for each in entry["values"]
        }
        for entry in answer["entries"]
    }


async def connect_as(node: Node, client_id: str) -> Client:
    """One with another client id."""
    from ottla.protocol import messages

    client = await Client.connect(node)

    def send(key: ApiKey, version: int, values: Mapping[str, Any], correlation_id: int = 1) -> None:
        frame = messages.encode_request(key, version, correlation_id, client_id, values)
        client.writer.write(len(frame).to_bytes(4, "big") + frame)

    client.send = send  # type: ignore[method-assign]
    return client


def test_quotas_are_kept_and_survive_a_restart(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            assert await described(client) == {}
            assert await alter(client, CLIENT, RATES) == (0, None)
            assert await alter(client, [("user", None)], {"request_percentage": 50.0}) == (0, None)
            assert await alter(client, [("user", None)], {"request_percentage": 9.0}, validate_only=True) == (0, None)
            assert await alter(client, CLIENT, {"consumer_byte_rate": None}) == (0, None)
            client.close()
        async with running(str(tmp_path), seed=2) as node:
            client = await Client.connect(node)
            assert await described(client) == {
                (("client-id", "test"),): {"producer_byte_rate": 10_000.0},
                (("user", None),): {"request_percentage": 50.0},
            }
            assert node.quotas is not None and node.quotas.clients
            assert await alter(client, CLIENT, {"producer_byte_rate": None}) == (0, None)
            assert await alter(client, [("user", None)], {"request_percentage": None}) == (0, None)
            assert await described(client) == {}
            assert not node.quotas.clients
            client.close()

    stub.run(test())


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_a_producer_beyond_its_quota_is_muted(tmp_path: Any, version: int) -> None:
    """110 KB at 10 KB/s over ten windows and what has passed of one: about 1 s."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client, other = await Client.connect(node), await connect_as(node, "other")
            await client.create("t")
            await client.produce("t", batch())  # so that there is a shortcut, which must not be taken any more
            await client.produce("t", batch())
            await alter(client, CLIENT, RATES)
            client.send(ApiKey.PRODUCE, version, produce_values("t", batch(110_000), 1, 0))
            client.send(ApiKey.METADATA, 8, {"topics": []})
            began_s = time.monotonic()
            answer = await client.receive(ApiKey.PRODUCE, version)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
            assert 900 <= answer["throttle_time"] <= 1200
            assert time.monotonic() - began_s < 0.5, "the answer itself does not wait"
            for _ in range(3):
                assert (await other.produce("t", batch(10_000)))["error_code"] == 0
            assert time.monotonic() - began_s < 0.5, "others do not wait"
            await client.receive(ApiKey.METADATA, 8)
            assert time.monotonic() - began_s > 0.8, "nothing is read meanwhile"
            client.close()
            other.close()

    stub.run(test())


def test_the_quota_of_one_client_costs_others_nothing_but_a_count(tmp_path: Any, monkeypatch: Any) -> None:
    """They keep their shortcuts: only a client that something limits is measured in whole."""
    measured: list[int] = []
    begin = dispatch.begin

    def counted(node: Any, connection: Any, frame: memoryview) -> Any:
        measured.append(ApiKey(int.from_bytes(frame[:2], "big")))
        return begin(node, connection, frame)

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client, other = await Client.connect(node), await connect_as(node, "other")
            await client.create("t")
            await alter(client, CLIENT, {"producer_byte_rate": 1e6})
            monkeypatch.setattr(quotas.dispatch, "begin", counted)

            async def use(who: Client) -> list[int]:
                measured.clear()
                for _ in range(3):
                    assert (await who.produce("t", batch(1_000)))["error_code"] == 0
                    assert (await who.fetch("t", 0))["records"]
                return [*measured]

            both = [ApiKey.PRODUCE, ApiKey.FETCH]
            assert await use(client) == [*both, ApiKey.PRODUCE, ApiKey.PRODUCE]
            assert await use(other) == both, "shortcuts are learned from the first"
            assert node.quotas is not None
            rates = {
                usage.tags.client_id: usage.rate.measure(node.quotas.now_ms()) for usage in node.quotas.clients.produce
            }
            assert rates["other"] > 0 and abs(rates["other"] - rates["test"]) < 100, "their bytes are counted alike"
            await alter(client, CLIENT, {"consumer_byte_rate": 1e9})
            assert await use(other) == [ApiKey.FETCH] * 3
            await alter(client, [("client-id", None)], {"producer_byte_rate": 1e6})
            assert await use(other) == both * 3
            client.close()
            other.close()

    stub.run(test())


def test_a_consumer_beyond_its_quota_gets_nothing_and_its_session_misses_nothing(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch(60_000))
            await alter(client, CLIENT, {"consumer_byte_rate": 10_000.0})
            asked = {**fetch_values("t", 0), "session_id": 0, "session_epoch": 0}
            first = await client.ask(ApiKey.FETCH, 12, asked)
            assert first["responses"] and not first["throttle_time"] and first["session_id"]
            again = {**asked, "session_id": first["session_id"], "topics": []}
            held = await client.ask(ApiKey.FETCH, 12, {**again, "session_epoch": 1})
            assert not held["responses"] and held["session_id"] == first["session_id"]
            assert 100 <= held["throttle_time"] <= 3000, "60 KB more than the 100 KB that the windows have room for"
            later = await client.ask(ApiKey.FETCH, 12, {**again, "session_epoch": 2})
            assert later["throttle_time"] >= 0 and not later["error_code"]
            await alter(client, CLIENT, {"consumer_byte_rate": None})
            last = await client.ask(ApiKey.FETCH, 12, {**again, "session_epoch": 3})
            assert last["responses"][0]["partitions"][0]["records"]
            client.close()

    stub.run(test())


def test_a_fetch_is_never_larger_than_what_the_windows_have_room_for(tmp_path: Any) -> None:
    """Else its records could never be had."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            for _ in range(30):
                await client.produce("t", batch(10_000))
            await alter(client, CLIENT, {"consumer_byte_rate": 5_000.0})
            answer = await client.ask(ApiKey.FETCH, 12, fetch_values("t", 0))
            assert 10_000 < len(answer["responses"][0]["partitions"][0]["records"]) <= 50_000
            client.close()

    stub.run(test())


def test_time_on_the_loop_is_a_quota_too(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await alter(client, [("user", "ANONYMOUS")], {"request_percentage": 0.0001})
            seen = []
            for key, version, values in (
                (ApiKey.METADATA, 12, {"topics": None}),
                (ApiKey.LIST_GROUPS, 4, {}),
                (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [{"resource_type": 4, "resource_name": "1"}]}),
            ):
                answer = await client.ask(key, version, values)
                seen.append(answer["throttle_time"])
            assert all(0 < each <= 1000 for each in seen), "a window at most"
            client.close()

    stub.run(test())


@pytest.mark.parametrize(("version", "strict"), [(5, False), (7, True)])
def test_mutations_take_tokens(tmp_path: Any, version: int, strict: bool) -> None:
    """11 tokens at first; what makes them lack is done, and then strict versions are refused."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await alter(client, [("user", None), ("client-id", None)], {"controller_mutation_rate": 1.0})
            rows = [
                {"name": f"t{n}", "num_partitions": 12, "replication_factor": 1, "assignments": (), "configs": ()}
                for n in range(3)
            ]
            asked = {"topics": rows, "timeout": 1000, "validate_only": True}
            answer = await client.ask(ApiKey.CREATE_TOPICS, version, asked)
            codes = [row["error_code"] for row in answer["topics"]]
            refused = ErrorCode.throttling_quota_exceeded
            assert codes == ([0, refused, refused] if strict else [0, 0, 0])
            assert answer["throttle_time"] in (range(900, 1001) if strict else range(24_900, 25_001))
            client.close()

    stub.run(test())


def test_connections_of_an_address_and_of_a_listener(tmp_path: Any) -> None:
    async def test() -> None:
        settings = {"quota.window.num": "2", "listener.name.plaintext.max.connection.creation.rate": "100"}
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            assert (await alter(client, [("ip", "127.0.0.1")], {"connection_creation_rate": 3.0}))[0] == 0
            clients = [await Client.connect(node) for _ in range(3)]
            for each in clients:
                await each.ask(ApiKey.API_VERSIONS, 0, {})
            began_s = time.monotonic()
            refused = await Client.connect(node)
            refused.send(ApiKey.API_VERSIONS, 0, {})
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await refused.receive(ApiKey.API_VERSIONS, 0)
            assert time.monotonic() - began_s > 0.2, "closed, but not before its time"
            await alter(client, [("ip", "127.0.0.1")], {"connection_creation_rate": None})
            assert node.quotas is not None and not node.quotas.addresses
            for each in (client, *clients, await Client.connect(node)):
                await each.ask(ApiKey.API_VERSIONS, 0, {})
                each.close()
            refused.close()

    stub.run(test())


def test_too_many_connections_wait_their_turn(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), {"max.connection.creation.rate": "5", "quota.window.num": "1"}) as node:
            began_s = time.monotonic()
            clients = [await Client.connect(node) for _ in range(8)]
            for each in clients:
                await each.ask(ApiKey.API_VERSIONS, 0, {})
                each.close()
            assert time.monotonic() - began_s > 0.3

    stub.run(test())


def test_where_throttle_times_are() -> None:
    assert throttle_offset(ApiKey.METADATA, 2) is None
    assert throttle_offset(ApiKey.METADATA, 3) == 4
    assert throttle_offset(ApiKey.METADATA, 9) == 5
    assert throttle_offset(ApiKey.OFFSET_DELETE, 0) == 6
    assert throttle_offset(ApiKey.API_VERSIONS, 3) is None
