"""The console of an Apache Kafka: its answers are read as the node's are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.console.routes import API, PAGES
from ottla.console.server import Options
from tests.cluster.admin import until
from tests.conformance.console.test_console_node import console, reading

SILENT = "has not answered for", "did not answer within"
"""What the console says of a broker that is silent for more than 1.5 s, as Kafka is now and then on a busy machine."""


def answered(ask: Callable[[], httpx.Response], *silent: str) -> httpx.Response:
    """The answer once the broker is not silent. A change is asked for again only where it was not sent."""
    return until(ask, lambda answer: not any(each in answer.text for each in silent))


def test_every_page_of_apache_kafka(oracle: str) -> None:
    admin = AdminClient({"bootstrap.servers": oracle})  # an answer that comes after its end is lost
    admin.create_topics([NewTopic("orders", 3)])["orders"].exception(60)
    producer = Producer({"bootstrap.servers": oracle, "transactional.id": "console"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b'{"id": 1}', key=b"console")
    producer.commit_transaction()
    with reading(oracle, "console-group", "classic"), console(Options(oracle, port=0)) as client:
        inside = {"{topic}": "orders", "{group:any}": "console-group", "{broker}": str(first_broker(client))}
        for page in PAGES:
            path = page.path
            for place, value in inside.items():
                path = path.replace(place, value)
            if "{" in path:
                continue
            path = "/group?group=console-group" if path == "/group" else path
            url = API + (path if path != "/" else "/overview")
            answer = answered(lambda url=url: client.get(url), *SILENT)  # type: ignore[misc]
            assert answer.status_code == 200, (path, answer.text)
            assert answer.json()["problems"] == {}, path
            assert answered(lambda path=path: client.get(path), *SILENT).status_code == 200  # type: ignore[misc]
        group = answered(lambda: client.get(f"{API}/groups/console-group"), *SILENT).json()["data"]
        assert (group["kind"], group["state"], group["member_count"]) == ("classic", "Stable", 1)
        found = client.get(f"{API}/topics/orders/messages", params={"q": "console", "in": "key"}).json()["data"]
        assert [row["value"]["kind"] for row in found["rows"]][:1] == ["json"]


def first_broker(client: httpx.Client) -> int:
    answer = answered(lambda: client.get(f"{API}/overview"), *SILENT)
    return int(answer.json()["data"]["nodes"][0]["id"])


def test_acts_on_apache_kafka(oracle: str) -> None:
    """The requests that the console writes are taken by Kafka, and what it refuses is said with its code."""
    with console(Options(oracle, port=0)) as client:

        def act(act_name: str, status: int = 200, /, **values: Any) -> dict[str, Any]:
            answer = answered(lambda: client.post(f"{API}/acts/{act_name}", json=values), SILENT[0])
            assert answer.status_code == status, answer.text
            found: dict[str, Any] = answer.json()
            return found

        def act_soon(act_name: str, **values: Any) -> None:
            """Kafka answers a change of quotas and users before its image has it."""
            until(lambda: client.post(f"{API}/acts/{act_name}", json=values).status_code, (200).__eq__)

        broker = first_broker(client)
        for preview in (True, False):
            act("create-topic", topic="acted", partitions=2, settings="retention.ms=60000", preview=preview)
        assert act("create-topic", 409, topic="acted")["code"] == "TOPIC_ALREADY_EXISTS"
        assert "INVALID_TOPIC" in act("create-topic", topic="a b", preview=True)["data"]["warnings"][0]
        act("add-partitions", topic="acted", partitions=3)
        act("configure-topic", topic="acted", name="retention.ms", value="70000")
        assert act("configure-topic", 409, topic="acted", name="retention.ms", value="x")["code"] == "INVALID_CONFIG"
        act("configure-broker", broker=broker, name="log.cleaner.threads", value="2")
        act("configure-broker", broker=broker, name="log.cleaner.threads", how="reset")
        for _ in range(3):
            act("produce", topic="acted", partition=0, key="k", value="v", headers="h=1")
        act("copy-record", topic="acted", partition=0, offset=1, to="acted", to_partition=1)
        with reading(oracle, "acted-group", "consumer", "acted"):
            assert "Stop its members first" in act("reset-offsets", 409, group="acted-group", to="latest")["error"]
        act("reset-offsets", group="acted-group", to="earliest")
        told = act("reset-offsets", group="acted-group", to="latest", topic="acted")["data"]["changes"]
        assert [each["after"] for each in told] == ["3", "1", "0"]
        act("delete-offsets", group="acted-group", topic="acted", confirm="acted-group")
        act("delete-group", group="acted-group", confirm="acted-group")
        act("delete-records", topic="acted", before="end", confirm="acted")
        act("elect-leaders", topic="acted")
        act("move-partition", topic="acted", partition=0, replicas=str(broker))
        act("set-quota", user="acted", quota="producer_byte_rate", value="1024")
        act_soon("remove-quota", user="acted", quota="producer_byte_rate")
        act("set-password", user="acted", password="secret")
        act_soon("delete-user", user="acted", confirm="acted")
        writer = Producer({"bootstrap.servers": oracle, "transactional.id": "acted"})
        writer.init_transactions()
        writer.begin_transaction()
        writer.produce("acted", "x", partition=2)
        writer.flush()
        act("abort-transaction", transactional_id="acted", confirm="acted")
        act("delete-topic", topic="acted", confirm="acted")
        assert client.get(f"{API}/topics/acted").status_code == 404


def test_a_throttle_on_apache_kafka(oracle: str) -> None:
    """A rate that is left behind is told by Kafka as the page reads it, and Kafka lets it be taken away."""

    def done(act: str, /, **values: Any) -> Any:
        answer = answered(lambda: client.post(f"{API}/acts/{act}", json=values), SILENT[0])
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    with console(Options(oracle, port=0)) as client:
        broker = first_broker(client)
        done("create-topic", topic="throttled", partitions=1)
        for side in ("leader", "follower"):
            name = f"{side}.replication.throttled"
            done("configure-broker", broker=broker, name=f"{name}.rate", value="1000000")
            done("configure-topic", topic="throttled", name=f"{name}.replicas", value=f"0:{broker}")
        answer = answered(lambda: client.get(f"{API}/moves"), *SILENT).json()
        assert answer["problems"] == {}
        assert answer["data"]["throttle"] == [{"broker": broker, "bytes_per_second": "1000000"}]
        assert answer["data"]["is_left_behind"]
        changes = done("remove-throttle")["changes"]
        assert [each["what"] for each in changes] == [f"rate of broker {broker}", "throttled replicas of throttled"]
        again = client.post(f"{API}/acts/remove-throttle", json={"preview": True})
        assert "There is no throttle." in again.text
