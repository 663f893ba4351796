"""The console of an Apache Kafka: its answers are read as the node's are."""

from __future__ import annotations

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.console.routes import API, PAGES
from ottla.console.server import Options
from tests.conformance.console.test_console_node import console, reading


def test_every_page_of_apache_kafka(oracle: str) -> None:
    AdminClient({"bootstrap.servers": oracle}).create_topics([NewTopic("orders", 3)])["orders"].exception(60)
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
            answer = client.get(API + (path if path != "/" else "/overview"))
            assert answer.status_code == 200, (path, answer.text)
            assert answer.json()["problems"] == {}, path
            assert client.get(path).status_code == 200
        group = client.get(f"{API}/groups/console-group").json()["data"]
        assert (group["kind"], group["state"], group["member_count"]) == ("classic", "Stable", 1)
        found = client.get(f"{API}/topics/orders/messages", params={"q": "console", "in": "key"}).json()["data"]
        assert [row["value"]["kind"] for row in found["rows"]][:1] == ["json"]


def first_broker(client: httpx.Client) -> int:
    return int(client.get(f"{API}/overview").json()["data"]["nodes"][0]["id"])
