"""Each act of the console beside a real node: what the cluster has before and after, as the console's pages tell.

The tests with a cluster in memory see that a request is well formed; only a node shows that it means what its act says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from ottla.console.routes import API
from ottla.console.server import Options
from ottla.protocol.messages import ApiKey
from ottla.testing import Broker, Registry
from tests.conformance.console.test_console_node import console
from tests.conformance.pair import Wire
from tests.unit.server.node import batch, produce_values

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    topics = {"orders": 2, "copies": 1, "unwanted": 1, "grown": 1, "emptied": 1, "payments": 1, "hung": 1}
    unsafe = {"transaction.partition.verification.enable": "false"}  # else no transaction could hang
    with Broker(settings=unsafe, topics=topics, group_initial_rebalance_delay_ms=0) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for topic in ("orders", "unwanted", "emptied"):
            for number in range(10):
                producer.produce(topic, f"v{number}", key=f"k{number}", partition=0, headers={"h": b"x"})
        producer.flush()
        yield broker


@pytest.fixture(scope="module")
def site(broker: Broker) -> Iterator[httpx.Client]:
    with (
        Registry(broker.bootstrap) as registry,
        console(Options(broker.bootstrap, port=0, registry={"schema.registry.url": registry.url})) as client,
    ):
        yield client


def act(site: httpx.Client, act_name: str, status: int = 200, /, **values: Any) -> dict[str, Any]:
    answer = site.post(f"{API}/acts/{act_name}", json=values)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found["data"] if status == 200 else found


def data(site: httpx.Client, path: str, **query: Any) -> Any:
    answer = site.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def until(is_so: Callable[[], bool]) -> None:
    """What a node does after it has answered."""
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_topics(site: httpx.Client) -> None:
    preview = act(site, "create-topic", topic="made", partitions=2, settings="retention.ms=60000", preview=True)
    assert not preview["done"]
    assert "made" not in {row["name"] for row in data(site, "/topics")["rows"]}
    act(site, "create-topic", topic="made", partitions=2, settings="retention.ms=60000")
    made = data(site, "/topics/made")
    assert made["partition_count"] == 2
    assert next(row for row in made["settings"] if row["name"] == "retention.ms")["value"] == "60000"
    again = act(site, "create-topic", 409, topic="made")
    assert again["code"] == "TOPIC_ALREADY_EXISTS"
    warned = act(site, "create-topic", topic="a b", preview=True)
    assert "INVALID_TOPIC" in warned["warnings"][0]
    act(site, "add-partitions", topic="grown", partitions=3)
    assert data(site, "/topics/grown")["partition_count"] == 3
    gone = act(site, "delete-topic", topic="unwanted", confirm="unwanted")
    assert {"what": "records, at most", "before": "10", "after": None, "note": ""} in gone["changes"]
    assert "unwanted" not in {row["name"] for row in data(site, "/topics")["rows"]}


def test_settings(site: httpx.Client) -> None:
    def value(path: str, name: str) -> tuple[str, bool]:
        return next((row["value"], row["differs"]) for row in data(site, path)["settings"] if row["name"] == name)

    told = act(site, "configure-topic", topic="orders", name="retention.ms", value="86400000")
    assert (told["changes"][0]["before"], told["changes"][0]["after"]) == ("-1", "86400000")
    assert value("/topics/orders", "retention.ms") == ("86400000", True)
    assert (
        "INVALID_CONFIG" in act(site, "configure-topic", 409, topic="orders", name="retention.ms", value="x")["error"]
    )
    act(site, "configure-topic", topic="orders", name="retention.ms", how="reset")
    assert value("/topics/orders", "retention.ms")[0] == "-1"
    act(site, "configure-broker", broker=1, name="log.cleaner.threads", value="2")
    assert value("/brokers/1", "log.cleaner.threads") == ("2", True)
    act(site, "configure-broker", name="log.cleaner.threads", value="1")
    started = act(site, "configure-broker", 409, broker=1, name="node.id", value="2")
    assert "cannot change while it runs" in started["error"]
    act(site, "configure-group", group="g", name="consumer.session.timeout.ms", value="50000")


def test_records(site: httpx.Client) -> None:
    act(site, "produce", topic="copies", key="a", value="né\n", headers="one=1", partition=0)
    (row,) = data(site, "/topics/copies/messages")["rows"]
    assert (row["key"]["text"], row["value"]["text"], row["headers"][0]["name"]) == ("a", "né\n", "one")
    act(site, "copy-record", topic="orders", partition=0, offset=4, to="copies")
    row, _ = data(site, "/topics/copies/messages")["rows"]
    assert (row["key"]["text"], row["value"]["text"], row["headers"][0]["name"]) == ("k4", "v4", "h")
    form = site.get("/acts/produce", params={"topic": "orders", "from_partition": 0, "from_offset": 5}).text
    assert ">\nv5</textarea>" in form
    told = act(site, "delete-records", topic="emptied", before="end", confirm="emptied")
    assert told["changes"][0]["before"] == "0"
    assert told["changes"][0]["after"] == "10"
    assert data(site, "/topics/emptied/messages")["rows"] == []
    assert data(site, "/topics/emptied")["partitions"][0]["begin"] == "10"
    large = act(site, "produce", 409, topic="copies", value="x" * 1_060_000)
    assert large["code"] == "MESSAGE_TOO_LARGE"


def consumer(broker: Broker, group: str, **more: str) -> Consumer:
    found = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )
    found.subscribe(["orders"])
    message = None
    while message is None or message.error():
        message = found.poll(LIMIT_S)
    found.commit(message, asynchronous=False)
    return found


def committed(site: httpx.Client, group: str) -> str | None:
    rows = data(site, f"/groups/{group}")["places"]
    return next((row["committed"] for row in rows if row["partition"] == 0), None)


def test_groups(site: httpx.Client, broker: Broker) -> None:
    member = consumer(broker, "readers", **{"group.instance.id": "i"})
    refused = act(site, "reset-offsets", 409, group="readers", to="latest")
    assert "Stop its members first" in refused["error"]
    assert act(site, "delete-group", 409, group="readers", confirm="readers")["error"]
    (row,) = data(site, "/groups/readers")["members"]
    act(site, "remove-member", group="readers", member=row["id"])
    until(lambda: data(site, "/groups/readers")["member_count"] == 0)
    assert committed(site, "readers") == "1"
    told = act(site, "reset-offsets", group="readers", to="latest", preview=True)
    assert [(each["before"], each["after"], each["note"]) for each in told["changes"]] == [
        ("1", "10", "skips 9 records")
    ]
    assert committed(site, "readers") == "1"
    act(site, "reset-offsets", group="readers", to="shift", value="+4")
    assert committed(site, "readers") == "5"
    act(site, "reset-offsets", group="readers", to="time", value="1970-01-01T00:00", topic="orders")
    assert committed(site, "readers") == "0"
    act(site, "delete-offsets", group="readers", topic="orders", confirm="readers")
    assert committed(site, "readers") is None
    consumer(broker, "others").close()
    act(site, "delete-group", group="others", confirm="others")
    assert site.get(f"{API}/groups/others").status_code == 404
    member.close()


def test_transactions(site: httpx.Client, broker: Broker) -> None:
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer"})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce("payments", "x")
    writer.flush()
    refused = act(site, "abort-hanging", 409, topic="payments", partition=0, start_offset=0, confirm="payments")
    assert "transactional id writer owns it" in refused["error"]
    act(site, "abort-transaction", transactional_id="writer", confirm="writer")
    states = {row["transactional_id"]: row["state"] for row in data(site, "/transactions", state="all")["rows"]}
    assert states["writer"] == "CompleteAbort"
    assert data(site, "/topics/payments/messages")["rows"] == []
    assert (
        "no open transaction"
        in act(site, "abort-transaction", 409, transactional_id="writer", confirm="writer")["error"]
    )


def test_a_transaction_that_hangs(site: httpx.Client, broker: Broker) -> None:
    wire = Wire(broker.bootstrap)
    given = wire.ask(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None, "transaction_timeout": 1_000})
    producer = {"producer_id": given["producer_id"], "producer_epoch": 0, "base_sequence": 0}
    values = {**produce_values("hung", batch(transactional=True, **producer)), "transactional_id": "ghost"}
    wire.ask(ApiKey.PRODUCE, 9, values)
    assert [row["open_since"] for row in data(site, "/topics/hung")["producers"]] == ["0"]
    missing = act(site, "abort-hanging", 404, topic="hung", partition=0, start_offset=7, confirm="hung")
    assert "No transaction is open" in missing["error"]
    act(site, "abort-hanging", topic="hung", partition=0, start_offset=0, confirm="hung")
    assert [row["open_since"] for row in data(site, "/topics/hung")["producers"]] == [None]


def test_users_and_quotas(site: httpx.Client) -> None:
    def users() -> dict[str, list[str]]:
        return {row["name"]: row["mechanisms"] for row in data(site, "/security")["users"]}

    act(site, "set-password", user="ann", password="secret of ann")
    act(site, "set-password", user="ann", password="secret of ann", mechanism="SCRAM-SHA-256", iterations=5000)
    assert users()["ann"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    act(site, "delete-user", user="ann", confirm="ann")
    assert "ann" not in users()
    act(site, "set-quota", user="ann", client_id="(default)", quota="producer_byte_rate", value="1048576")
    (row,) = data(site, "/security")["quotas"]
    assert (row["names"], row["values"]) == (
        {"user": "ann", "client_id": "(default)"},
        {"producer_byte_rate": "1048576"},
    )
    told = act(site, "remove-quota", user="ann", client_id="(default)", quota="producer_byte_rate")
    assert told["changes"][0]["before"] == "1048576"
    assert data(site, "/security")["quotas"] == []
    # Without an authorizer there is nothing to keep ACLs.
    assert act(site, "create-acl", 409, principal="ann", name="orders")["code"] == "SECURITY_DISABLED"


def test_places(site: httpx.Client) -> None:
    act(site, "elect-leaders", topic="orders")
    act(site, "move-partition", topic="orders", partition=0, replicas="1")
    assert "not up" in act(site, "move-partition", 400, topic="orders", partition=0, replicas="7")["error"]
    assert "being moved" in act(site, "cancel-move", 404, topic="orders", partition=0)["error"]


def test_schemas(site: httpx.Client) -> None:
    def schema(*names: str) -> str:
        return json.dumps({"type": "record", "name": "R", "fields": [{"name": each, "type": "int"} for each in names]})

    act(site, "register-schema", subject="orders-value", schema=schema("id"))
    refused = act(site, "register-schema", 409, subject="orders-value", schema=schema("id", "more"))
    assert "not compatible" in refused["error"]
    act(site, "set-compatibility", subject="orders-value", level="NONE")
    act(site, "register-schema", subject="orders-value", schema=schema("id", "more"))
    assert data(site, "/schemas/orders-value")["version_count"] == 2
    assert data(site, "/schemas/orders-value")["level"] == "NONE"
    assert "bug" not in act(site, "register-schema", 409, subject="orders-value", schema="{")["error"]
    act(site, "delete-subject", subject="orders-value", confirm="orders-value")
    assert site.get(f"{API}/schemas/orders-value").status_code == 404
