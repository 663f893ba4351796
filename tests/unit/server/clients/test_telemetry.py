"""GetTelemetrySubscriptions and PushTelemetry on a node."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ottla.errors import ErrorCode
from ottla.metadata.image import ConfigResourceType
from ottla.protocol.messages import ApiKey
from ottla.protocol.records import compression
from ottla.protocol.records.compression import CODECS, Codec, compress, decompress
from ottla.server.clients.telemetry import telemetry_of
from ottla.server.http.callers import Caller
from ottla.server.http.client_metrics import PREFIX
from ottla.server.node import Node
from tests.unit.server.node import Client, running
from tests.unit.server.stub import run, until
from tests.unit.telemetry.otlp import counter, gauge, point, pushed
from tests.unit.telemetry.recorded import JAVA, LIBRDKAFKA

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
METRICS = pushed(gauge("org.apache.kafka.producer.record.queue.time.avg", point(1.5)))


async def subscribe(client: Client, name: str, **settings: str | None) -> None:
    configs = [
        {"name": key.replace("_", "."), "value": value, "config_operation": int(value is None)}
        for key, value in settings.items()
    ]
    resource = {"resource_type": ConfigResourceType.CLIENT_METRICS, "resource_name": name, "configs": configs}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer["responses"][0]["error_code"] == 0, answer


def push(got: dict[str, Any], metrics: bytes = METRICS, **more: Any) -> dict[str, Any]:
    return {
        "client_instance_id": got["client_instance_id"],
        "subscription_id": got["subscription_id"],
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics,
        **more,
    }


CALLER = Caller("User:admin", "127.0.0.1", True)


def test_a_client_learns_what_to_push_and_pushes(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            nothing = await client.ask(GET, 0, {"client_instance_id": None})
            assert nothing["requested_metrics"] == [] and nothing["push_interval"] == 300_000
            assert nothing["accepted_compression_types"] == [4, 3, 1, 2]
            assert nothing["telemetry_max_bytes"] == 1048576 and nothing["client_instance_id"] is not None
            await subscribe(client, "all", metrics="*", interval_ms="100")
            got = await client.ask(GET, 0, {"client_instance_id": nothing["client_instance_id"]})
            assert got["requested_metrics"] == ["*"] and got["push_interval"] == 100
            assert got["subscription_id"] != nothing["subscription_id"]
            for codec in CODECS.values():
                other = await client.ask(GET, 0, {"client_instance_id": None})
                data = compress(codec, METRICS)
                answer = await client.ask(PUSH, 0, push(other, data, compression_type=int(codec)))
                assert answer["error_code"] == 0, codec
                kept = telemetry_of(node).clients.pushed[UUID(str(other["client_instance_id"]))]
                assert kept.points[0].value == 1.5 and kept.client_id == "test"
            client.close()

    run(case())


def test_it_is_offered_once_there_is_a_subscription(tmp_path: Path) -> None:
    async def offered(client: Client) -> bool:
        who = {"client_software_name": "test", "client_software_version": "1"}
        keys = {each["api_key"] for each in (await client.ask(ApiKey.API_VERSIONS, 3, who))["api_keys"]}
        assert (GET in keys) == (PUSH in keys)
        return GET in keys

    async def case() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            assert not await offered(client)
            got = await client.ask(GET, 0, {"client_instance_id": None})
            assert got["error_code"] == 0 and not await offered(client)  # asked without an offer, as of Kafka
            await subscribe(client, "one", metrics="a.")
            assert await offered(client)
            client.close()
        async with running(str(tmp_path), seed=2) as node:
            client = await Client.connect(node)
            assert await offered(client)
            await subscribe(client, "one", metrics=None)
            assert not await offered(client)
            client.close()

    run(case())


async def answered(node: Node, metrics: bytes, codec: Codec = Codec.NONE, **more: Any) -> ErrorCode:
    """What a new client's push is answered."""
    client = await Client.connect(node)
    got = await client.ask(GET, 0, {"client_instance_id": None})
    answer = await client.ask(PUSH, 0, push(got, metrics, compression_type=int(codec), **more))
    client.close()
    return ErrorCode(answer["error_code"])


def test_a_bomb_takes_no_more_memory_than_telemetry_max_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2026-111073: a megabyte of zeros, compressed, became hundreds of megabytes in Kafka's broker."""
    rooms: list[int] = []

    def room_for(size: int) -> Any:
        rooms.append(size)
        return real(size)

    real = compression.room_for
    monkeypatch.setattr(compression, "room_for", room_for)

    async def case() -> None:
        async with running(str(tmp_path), {"telemetry.max.bytes": "100000"}) as node:
            for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY):
                rooms.clear()
                bomb = compress(codec, bytes(1_500_000))
                assert len(bomb) < 100_000, codec
                assert await answered(node, bomb, codec) == ErrorCode.telemetry_too_large, codec
                assert sum(rooms) <= 2 * 100_000, codec
            assert await answered(node, compress(Codec.ZSTD, bytes(99_000)), Codec.ZSTD) == ErrorCode.invalid_record
            assert await answered(node, bytes(100_001)) == ErrorCode.telemetry_too_large
            found = telemetry_of(node).clients
            assert found.failures == 5 and not found.pushed and not found.pushed_bytes

    run(case())


def test_one_is_decompressed_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand clients that push together take the memory of one."""
    at_work, most = [0], [0]

    def slowly(*what: Any) -> Any:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        threading.Event().wait(0.001)
        at_work[0] -= 1
        return decompress(*what)

    monkeypatch.setattr("ottla.server.clients.telemetry.decompress", slowly)

    async def case() -> None:
        async with running(str(tmp_path)) as node:
            found = await asyncio.gather(
                *[answered(node, compress(Codec.ZSTD, METRICS), Codec.ZSTD) for _ in range(10)]
            )
            assert found == [ErrorCode.none] * 10 and most == [1] and len(telemetry_of(node).clients.pushed) == 10

    run(case())


def test_what_is_refused(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            assert await answered(node, b"\xff") == ErrorCode.invalid_record
            assert await answered(node, b"no gzip", Codec.GZIP) == ErrorCode.invalid_record
            assert await answered(node, METRICS, subscription_id=1) == ErrorCode.unknown_subscription_id
            assert await answered(node, METRICS, client_instance_id=None) == ErrorCode.invalid_request
            assert await answered(node, METRICS, client_instance_id=UUID(int=1)) == ErrorCode.invalid_request
            assert await answered(node, b"") == ErrorCode.none
            assert not telemetry_of(node).clients.pushed
            client = await Client.connect(node)
            got = await client.ask(GET, 0, {"client_instance_id": None})
            again = await client.ask(GET, 0, {"client_instance_id": got["client_instance_id"]})
            assert again["error_code"] == ErrorCode.throttling_quota_exceeded and again["push_interval"] == 0
            answer = await client.ask(PUSH, 0, push(got, compression_type=5))
            assert answer["error_code"] == ErrorCode.unsupported_compression_type
            client.close()

    run(case())


def test_a_client_that_comes_back_is_a_new_one(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            first = await Client.connect(node)
            got = await first.ask(GET, 0, {"client_instance_id": None})
            known = {"client_instance_id": got["client_instance_id"]}
            assert not (await first.ask(PUSH, 0, push(got)))["error_code"]
            clients = telemetry_of(node).clients
            first.close()
            await until(lambda: not clients.instances)
            assert len(clients.pushed) == 1  # shown for a while
            second = await Client.connect(node)
            assert (await second.ask(GET, 0, known))["subscription_id"] == got["subscription_id"]
            second.close()

    run(case())


def test_subscriptions_choose_clients_by_what_they_say(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            who = {"client_software_name": "librdkafka", "client_software_version": "2.5.0"}
            await client.ask(ApiKey.API_VERSIONS, 3, who)
            port = client.writer.get_extra_info("sockname")[1]
            await subscribe(client, "one", metrics="a.", match="client_id=test,client_software_name=lib.*")
            await subscribe(client, "two", metrics="b.", match=f"client_source_port={port}")
            await subscribe(client, "three", metrics="c.", match="client_software_version=2.6.*")
            got = await client.ask(GET, 0, {"client_instance_id": None})
            assert sorted(got["requested_metrics"]) == ["a.", "b."]
            client.close()

    run(case())


def test_metrics_of_clients_are_shown(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(str(tmp_path), {"ottla.http.listener": "127.0.0.1:0"}) as node:
            assert node.http is not None
            nothing = (await node.http.pages.answer("GET", "/metrics", {}, CALLER)).body
            assert b"client_metrics" not in b"".join(nothing)
            for data in (
                JAVA,
                LIBRDKAFKA,
                pushed(
                    gauge("kafka_server_x", point(1)),
                    gauge("a.total", point(1, client_id="forged", **{"9-é": 'a"b'})),
                    counter("a", point(2)),
                    gauge("same.name", point(1)),
                    gauge("same_name", point(2)),
                ),
            ):
                assert await answered(node, data) == ErrorCode.none
            for accept, parse in (("", parse_text), ("application/openmetrics-text", parse_openmetrics)):
                body = (await node.http.pages.answer("GET", "/metrics", {"accept": accept}, CALLER)).body
                families = {each.name: each for each in parse(b"".join(body).decode())}
                records = families[f"{PREFIX}consumer_fetch_manager_records_consumed"]
                assert records.type == "counter"
                assert {each.labels.get("topic"): each.value for each in records.samples} == {"t": 3.0, None: 3.0}
                assert {each.labels["client_id"] for each in records.samples} == {"test"}
                avg = families[f"{PREFIX}producer_record_queue_time_avg"]
                assert avg.type == "gauge" and avg.samples[0].value == 0.059
                groups = {each.labels["group_id"] for each in families["ottla_client_info"].samples}
                assert groups == {"g1", ""} and len(families["ottla_client_info"].samples) == 3
                (forged,) = families[f"{PREFIX}a_total_value"].samples
                assert forged.labels["client_id"] == "test" and forged.labels["attribute_9__"] == 'a"b'
                assert families[f"{PREFIX}a"].samples[0].value == 2
                assert families[f"{PREFIX}kafka_server_x"].samples and "kafka_server_x" not in families
                assert len(families[f"{PREFIX}same_name"].samples) == 1
                assert families["ottla_client_metrics_left_out"].samples[0].value == 1
                assert families["kafka_server_client_metrics_plugin_export"].samples[0].value == 3

    run(case())


def test_there_may_be_no_metrics_of_clients(tmp_path: Path) -> None:
    settings = {"ottla.http.listener": "127.0.0.1:0", "ottla.metrics.clients": "false"}

    async def case() -> None:
        async with running(str(tmp_path), settings) as node:
            assert await answered(node, METRICS) == ErrorCode.none
            assert node.http is not None
            assert b"client_metrics" not in b"".join((await node.http.pages.answer("GET", "/metrics", {}, CALLER)).body)

    run(case())
