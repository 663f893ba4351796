"""Metrics, health and logs of a node as an operator meets them: a process, its port, its standard error."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.compiled import how
from ottla.testing import Broker
from peers.kafka import free_port
from tests.node import NodeProcess


def fetch(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def samples(port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(fetch(port, "/metrics")[1])
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def test_a_consumer_stops_and_its_group_falls_behind() -> None:
    """With a real client, in an embedded broker; lag is there without members."""
    port = free_port()
    quiet = {"ottla.http.listener": f"127.0.0.1:{port}", "ottla.log.slow.request.ms": -1}
    with Broker(quiet, topics=["orders"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(3):
            producer.produce("orders", b"x")
        assert producer.flush(300) == 0
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        message = consumer.poll(300)
        assert message is not None
        consumer.commit(message, asynchronous=False)
        where = frozenset({("consumergroup", "billing"), ("topic", "orders"), ("partition", "0")})
        found = samples(port)
        assert found["kafka_consumergroup_members", frozenset({("consumergroup", "billing")})] == 1
        assert found["kafka_consumergroup_lag", where] == 2
        consumer.close()
        found = samples(port)
        assert found["kafka_consumergroup_members", frozenset({("consumergroup", "billing")})] == 0
        assert found["kafka_consumergroup_lag", where] == 2
        assert 0 <= found["kafka_consumergroup_lag_seconds", where] < 600
        assert fetch(port, "/ready")[0] == fetch(port, "/health")[0] == 200
        assert broker.output == ""


def test_a_broker_that_did_not_ask_has_no_port_and_loads_nothing_for_it(tmp_path: Path) -> None:
    code = """if True:
        import asyncio, random, sys
        from ottla.clock import SystemClock
        from ottla.config.server import ServerConfig
        from ottla.filesystem import OsFileSystem
        from ottla.network import SystemNetwork
        from ottla.server.node import Node

        async def main():
            config = ServerConfig.load(None, {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}, {})
            node = Node(config, OsFileSystem(), SystemClock(), random.Random(1), SystemNetwork())
            await node.start()
            print(sorted({"h11", "http.client", "prometheus_client", "ottla.server.http.server"} & set(sys.modules)))
            await node.stop()

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_logs_are_objects_and_the_first_line_stays(tmp_path: Path) -> None:
    port = free_port()
    node = NodeProcess(tmp_path / "data", {"ottla.log.format": "json", "ottla.http.listener": f"127.0.0.1:{port}"})
    with node:
        assert node.process is not None
        status = [sys.executable, "-m", "ottla.cli.main", "server", "status", str(node.data), "--json"]
        found = json.loads(subprocess.run(status, capture_output=True, text=True, timeout=300, check=True).stdout)
        assert (found["ready"], found["http"], found["address"]) == (True, f"127.0.0.1:{port}", node.bootstrap)
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(300) == 0
        node.process = None
    lines = node.output.read_text().splitlines()
    assert f"ottla: listening on {node.bootstrap}, data in {node.data} ({how()})" in lines
    assert f"ottla: metrics and health at http://127.0.0.1:{port}" in lines
    found = [json.loads(line) for line in lines if not line.startswith("ottla: ")]
    events = [each["event"] for each in found]
    assert [event for event in events if event.startswith("node")] == ["node started", "node stopping", "node stopped"]
    assert all({"timestamp", "level", "logger", "event"} <= each.keys() for each in found)
