"""Brokers of tests keep records however old their timestamps are: a slow run would otherwise lose them under a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.clock import SystemClock
from ottla.testing import Broker
from tests.conformance.operations.operations import Client, eventually
from tests.node import NodeProcess
from tests.unit.server.node import running
from tests.unit.server.stub import run

TESTS = Path(__file__).resolve().parents[2]
OLD = 1_700_000_000_000
FIXED_TIMES = re.compile(r"\b1_[67]\d\d_\d{3}_\d{3}_\d{3}\b|\b1[67]\d{11}\b|\b(TIME|NOW|OLD)\b")
OWN_BROKER = re.compile(r'cli\.main", "server", "start"|[^\w.]Node\(')


def retention(bootstrap: str) -> str:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    client = AdminClient({"bootstrap.servers": bootstrap})
    found = client.describe_configs([resource])[resource].result(300)
    return str(found["log.retention.ms"].value)


@pytest.mark.parametrize("fixture", ["bootstrap", "oracle"])
def test_the_brokers_of_all_tests_keep_records(fixture: str, request: pytest.FixtureRequest) -> None:
    assert retention(request.getfixturevalue(fixture)) == "-1"


def test_nodes_inside_tests_keep_records(tmp_path: Path) -> None:
    async def test() -> int:
        async with running(str(tmp_path)) as node:
            return int(node.config["log.retention.ms"])

    assert run(test()) == -1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "-1"),
        ({"log.retention.hours": 1}, "3600000"),
        ({"log.retention.minutes": 2}, "120000"),
        ({"log.retention.ms": 5}, "5"),
    ],
)
def test_a_broker_for_users_keeps_records_by_default(settings: dict[str, int], expected: str) -> None:
    with Broker(settings, topics=["t"]) as broker:
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert client.describe_configs([resource])[resource].result(300)["retention.ms"].value == expected


def test_an_old_record_outlives_the_checks_of_retention(tmp_path: Path) -> None:
    """A topic that is about retention loses its record in the same check."""
    often = {"log.retention.check.interval.ms": "50"}
    with NodeProcess(tmp_path / "data", often) as node, Broker(often) as broker:
        for each in (node, broker):
            client = Client(each)
            for topic, settings in (("a", {}), ("short", {"retention_ms": 1000}), ("z", {})):
                assert client.create(topic, **settings) == "none"
            producer = Producer({"bootstrap.servers": each.bootstrap})
            for topic in ("a", "z", "short"):
                producer.produce(topic, b"old", timestamp=OLD)
            assert producer.flush(300) == 0
            for _ in range(2):  # a second one, which began after the first had been seen
                start = client.offset("short", -2)
                eventually(lambda client=client, start=start: client.offset("short", -2) > start)  # type: ignore[misc]
                client.produce_all("short", b"again", timestamp=OLD)
            assert [client.offset(topic, -2) for topic in ("a", "z")] == [0, 0]


def test_whoever_starts_a_broker_of_its_own_and_writes_old_records_says_how_long_they_stay() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if OWN_BROKER.search(text) and FIXED_TIMES.search(text) and "log.retention" not in text:
            found.append(str(path.relative_to(TESTS)))
    assert found == []


def test_the_clock_is_later_than_the_tests_think() -> None:
    """Else nothing of this file shows anything."""
    assert SystemClock().now_ms() - OLD > 30 * 86_400_000
