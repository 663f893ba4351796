"""Client telemetry (KIP-714): Kafka answers the same, and its clients push what is shown at /metrics."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.compression import Codec, compress
from peers.kafka import START_FAST, KafkaPeer, free_port
from tests.conformance.clients import build
from tests.conformance.pair import Pair, Wire
from tests.conformance.shell import Shell
from tests.node import NodeProcess
from tests.unit.telemetry.otlp import gauge, point, pushed

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
INTERVAL_S = 0.3
METRICS = pushed(gauge("org.apache.kafka.producer.x", point(1)))
LIMIT_S = 60


class Asked(Pair):
    """Both are asked the same; only the temporality differs, and what no two clients have in common."""

    def get(self, client: UUID | None) -> dict[str, Any]:
        mine, theirs = self.both(GET, 0, {"client_instance_id": client})
        assert mine.pop("delta_temporality") is False and theirs.pop("delta_temporality") in (True, False)
        assert mine == theirs, (mine, theirs)
        return dict(mine)

    def push(self, client: UUID, subscription: int, metrics: bytes = METRICS, **more: Any) -> int:
        values = {
            "client_instance_id": client,
            "subscription_id": subscription,
            "terminating": False,
            "compression_type": 0,
            "metrics": metrics,
            **more,
        }
        return int(self.same(PUSH, 0, values)["error_code"])

    def alter(self, name: str, **settings: str | None) -> Any:
        configs = [
            {"name": key.replace("_", "."), "value": value, "config_operation": int(value is None)}
            for key, value in settings.items()
        ]
        resource = {"resource_type": 16, "resource_name": name, "configs": configs}
        answer = self.same(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        self.settle()
        return answer


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Asked]:
    with ExitStack() as stack:
        kafka = stack.enter_context(
            KafkaPeer(
                tmp_path / "kafka",
                heap="512m",
                flags=START_FAST,
                classes=build.build("tools"),
                settings={"metric.reporters": "TelemetryReceiver"},
            )
        )
        node = stack.enter_context(NodeProcess(tmp_path / "node"))
        yield Asked(node.bootstrap, kafka.bootstrap)


@pytest.mark.nightly(
    "tests/unit/telemetry/test_clients.py::test_intervals",
    "tests/unit/telemetry/test_subscriptions.py::test_ids_are_those_that_kafka_gives",
)
@pytest.mark.skipif(build.missing("tools") is not None, reason="no javac here")
def test_both_answer_the_same(pair: Asked) -> None:
    one, two = UUID(int=71 << 64), UUID("d720e90e-56d5-4b25-b88a-a96081c85033")
    assert pair.get(one)["push_interval"] == 300_000
    assert pair.get(one)["error_code"] == 89
    _subscriptions(pair)
    pair.alter("s", metrics="org.a.,org.b.,zeta,alpha,a.very.long.prefix", interval_ms=f"{INTERVAL_S * 1000:.0f}")
    subscription = pair.get(one)["subscription_id"]
    assert pair.push(one, subscription) == 0
    time.sleep(2 * INTERVAL_S)
    assert pair.push(one, 5) == 117 and pair.get(one)["error_code"] == 0
    time.sleep(2 * INTERVAL_S)
    assert pair.push(one, subscription, compression_type=9) == 76 and pair.get(one)["error_code"] == 0
    for data, codec, expected in (
        (bytes(1_048_577), Codec.NONE, 118),
        (b"not gzip", Codec.GZIP, 87),
        (b"\xff", Codec.NONE, 87),
        (b"", 0, 0),
        *((compress(codec, METRICS), codec, 0) for codec in Codec),
    ):
        time.sleep(2 * INTERVAL_S)
        assert pair.push(one, subscription, data, compression_type=int(codec)) == expected
    assert pair.push(one, subscription, terminating=True) == 0
    assert pair.push(one, subscription, terminating=True) == pair.push(one, subscription) == 42
    time.sleep(2 * INTERVAL_S)
    assert pair.push(one, subscription) == 0
    assert pair.push(UUID(int=0), 0) == pair.push(UUID(int=1), 0) == 42
    assert pair.get(two)["subscription_id"] != subscription
    pair.alter("s", interval_ms="600000")
    assert pair.get(two)["error_code"] == 0 and pair.get(two)["error_code"] == 89
    for wire in (pair.ottla, pair.kafka):  # what is known of a client goes with its connection
        wire.socket.close()
        wire.socket = wire.__class__(":".join(map(str, wire.address))).socket
        _answers(wire, two)


def _answers(wire: Wire, client: UUID) -> None:
    _wait(lambda: wire.ask(GET, 0, {"client_instance_id": client})["error_code"] == 0)


def _subscriptions(pair: Asked) -> None:
    """Settings that are taken or refused alike, and clients that match alike."""
    numbers = iter(range(1000))
    for match in (
        "client_software_name=unknown",
        "client_software_name=apache-kafka-java",
        "client_id=.*",
        "client_id=conf",
        "client_id=",
        "client_source_port=\\d+",
        "client_source_address=127.0.0.1",
        "a=b",
        "client_id=x=",
        "client_id=x=y",
        "client_id=[",
        "client_id",
        "=x",
        " client_id = .* , client_software_version=.*",
        "client_id=nobody,client_id=conf.*",
    ):
        pair.alter("m", match=match, metrics="m")
        pair.get(UUID(int=72 << 64 | next(numbers)))
    pair.alter("m", match=None, metrics=None)
    for settings in (
        {"metrics": ""},
        {"metrics": "*"},
        {"metrics": "a,*,b"},
        {"interval_ms": "99"},
        {"interval_ms": "3600001"},
        {"interval_ms": "x"},
        {"bogus": "1"},
        {"metrics": ","},
        {"metrics": "a,,b"},
    ):
        pair.alter("n", **settings)
        pair.get(UUID(int=72 << 64 | next(numbers)))
    pair.alter("n", metrics=None)
    pair.alter("", metrics="a")


def _wait(condition: Any) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[tuple[NodeProcess, Any]]:
    """A node, and what its /metrics has."""
    port = free_port()
    with NodeProcess(tmp_path / "node", {"ottla.http.listener": f"127.0.0.1:{port}"}) as node:
        yield node, lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S).read().decode()


def value(text: str, name: str, **labels: str) -> float | None:
    for line in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE):
        if all(f'{key}="{each}"' in line[0] for key, each in labels.items()):
            return float(line[1])
    return None


@pytest.mark.client("confluent-kafka", "pushes its metrics (KIP-714)")
def test_librdkafka_pushes(shown: tuple[NodeProcess, Any]) -> None:
    node, text = shown
    configs = [{"name": "metrics", "value": "*"}, {"name": "interval.ms", "value": "100"}]
    resource = {
        "resource_type": 16,
        "resource_name": "s",
        "configs": [{**each, "config_operation": 0} for each in configs],
    }
    wire = Wire(node.bootstrap)
    wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "orders", "log_level": 0})
    name = "kafka_client_producer_connection_creation_total"
    _wait(lambda: producer.poll(0.05) or (value(text(), name, client_id="orders") or 0) >= 1)
    found = text()
    assert value(found, "ottla_client_info", client_id="orders", client_source_address="127.0.0.1") == 1
    assert value(found, "kafka_client_producer_record_queue_time_max", client_id="orders") is not None
    wire.socket.close()


@pytest.mark.nightly("tests/unit/server/clients/test_telemetry.py::test_metrics_of_clients_are_shown")
@pytest.mark.client("ClientMetricsCommand", "a subscription that Kafka's clients follow")
@pytest.mark.client("ConsoleConsumer", "pushes its metrics (KIP-714)")
def test_kafkas_clients_push(shown: tuple[NodeProcess, Any], shell: Shell) -> None:
    node, text = shown
    at = ("--bootstrap-server", node.bootstrap)
    wanted = ("--metrics", "org.apache.kafka.consumer.", "--match", "client_software_name=apache-kafka-java")
    shell.run("ClientMetricsCommand", *at, "--alter", "--name", "all", *wanted, "--interval", "100")
    assert "interval.ms=100" in shell.run("ClientMetricsCommand", *at, "--describe", "--name", "all").out
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for number in range(3):
        producer.produce("t", str(number))
    producer.flush()
    consumer = ("--topic", "t", "--group", "g", "--from-beginning", "--timeout-ms", "3000")
    shell.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *at, *consumer, check=False)
    found = text()
    consumed = "kafka_client_consumer_fetch_manager_records_consumed_total"
    assert value(found, consumed, client_id="console-consumer", topic="t") == 3
    assert value(found, "ottla_client_info", client_software_name="apache-kafka-java", group_id="g") == 1
    assert value(found, "kafka_client_producer_connection_creation_total") is None  # librdkafka does not match
    shell.run("ClientMetricsCommand", *at, "--delete", "--name", "all")
    assert not shell.run("ClientMetricsCommand", *at, "--list").out.strip()
