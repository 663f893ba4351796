"""GetTelemetrySubscriptions and PushTelemetry on a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.metadata.image import ConfigResourceType
from ottla.protocol.compression import CODECS, compress
from ottla.protocol.messages import ApiKey
from ottla.server.telemetry import telemetry_of
from tests.unit.server.node import Client, running
from tests.unit.server.stub import run
from tests.unit.telemetry.otlp import gauge, point, pushed

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
        "client_instance_id": got["client_instance_id"], "subscription_id": got["subscription_id"],
        "terminating": False, "compression_type": 0, "metrics": metrics, **more,
    }  # fmt: skip


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
