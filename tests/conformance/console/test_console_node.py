"""The console beside a real node: every page and its JSON, with records, groups of both protocols, a transaction.

Cheaper tests have a cluster in memory; only a node shows that its answers are read right, by the API's own document.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import httpx
import jsonschema
import pytest
from confluent_kafka import Consumer, Producer, libversion, version

from ottla.console.brokers import Brokers
from ottla.console.records import local_logs
from ottla.console.routes import API, EVENTS, FILES, PAGES
from ottla.console.server import Console, Options
from ottla.protocol.fetch import FetchRequest, FetchResponse
from ottla.testing import Broker, Registry

LIMIT_S = 60.0
BIG = b"x" * 10_000
MASKS = """
[[mask]]
topics = ["cards"]
fields = ["card.number"]
headers = ["authorization"]
"""


@contextmanager
def console(options: Options) -> Iterator[httpx.Client]:
    made = Console(options)
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    try:
        with httpx.Client(base_url=made.url, timeout=LIMIT_S) as client:
            yield client
    finally:
        made.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def write_records(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(300):
        value = json.dumps({"id": number, "customer": f"c{number % 7}"})
        producer.produce("orders", value, key=f"k{number % 5}", headers={"trace": b"abc"}, timestamp=1_000 + number)
    producer.produce("cards", json.dumps({"card": {"number": "4111", "kind": "visa"}}), headers={"Authorization": "s3"})
    producer.produce("big", BIG, key=b"\xff\x00")
    producer.flush()
    for id, ends in (("committed", True), ("aborted", False)):
        writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": id})
        writer.init_transactions()
        writer.begin_transaction()
        writer.produce("payments", id)
        writer.flush()
        writer.commit_transaction() if ends else writer.abort_transaction()


@contextmanager
def reading(bootstrap: str, group: str, protocol: str, topic: str = "orders") -> Iterator[None]:
    """A member that has committed one record."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "client.id": "reader",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = None
        while message is None or message.error():
            message = consumer.poll(LIMIT_S)
        consumer.commit(message, asynchronous=False)
        yield
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def masks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("masks") / "masks.toml"
    file.write_text(MASKS)
    return file


@pytest.fixture(scope="module")
def site(masks: Path) -> Iterator[httpx.Client]:
    topics = {"orders": 3, "payments": 1, "empty": 1, "cards": 1, "big": {"partitions": 1, "retention_ms": 86400000}}
    with (
        Broker(topics=topics, group_initial_rebalance_delay_ms=0) as broker,
        Registry(broker.bootstrap) as registry,
    ):
        write_records(broker.bootstrap)
        schema = {"schema": json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]})}
        answer = httpx.post(f"{registry.url}/subjects/orders-avro-value/versions", json=schema)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("empty-avro", b"\0" + answer.json()["id"].to_bytes(4, "big") + b"\x54")
        producer.flush()
        shop = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "shop", "enable.idempotence": True})
        shop.produce("written", b"first")
        shop.flush()
        options = Options(broker.bootstrap, port=0, registry={"schema.registry.url": registry.url}, masks=masks)
        with (
            reading(broker.bootstrap, "old", "classic"),
            reading(broker.bootstrap, "new", "consumer"),
            console(options) as client,
        ):
            yield client
        assert shop.flush(LIMIT_S) == 0  # it is connected until here


def data(site: httpx.Client, path: str, **query: Any) -> Any:
    answer = site.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.json()["problems"] == {}
    return answer.json()["data"]


FILLED = {"{topic}": "orders", "{group}": "old", "{broker}": "1", "{subject}": "orders-avro-value"}


def filled(path: str) -> str:
    for name, value in FILLED.items():
        path = path.replace(name, value)
    return f"{path}?group=old" if path.endswith("/group") else path


def test_every_answer_is_as_documented(site: httpx.Client) -> None:
    document = site.get(f"{API}/openapi.json").json()
    reading = {path: operations for path, operations in document["paths"].items() if "get" in operations}
    assert len(reading) == len(PAGES) + len(FILES) + 2  # events of tails, and how far a search is
    for path, operations in reading.items():
        if path in (EVENTS.api_path, *(each.api_path for each in FILES)) or "/searches/" in path:
            continue
        answer = site.get(filled(path))
        assert answer.status_code == 200, (path, answer.text)
        schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
        assert answer.json()["problems"] == {}, path


def test_every_page_has_what_its_json_has(site: httpx.Client) -> None:
    for page in PAGES:
        answer = site.get(filled(page.path.replace(":any}", "}")))
        assert answer.status_code == 200, (page.path, answer.text)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert 'href="/api/v1/' in answer.text
    assert "All is well" in site.get("/").text
    assert "orders-avro-value" in site.get("/schemas").text


def test_a_query_is_run(site: httpx.Client) -> None:
    statement = "select value.customer c, count(*) n from orders group by all order by n desc, c limit 2"
    found = data(site, "/sql", sql=statement, seconds=30)
    assert (found["rows"], found["error"]) == ([["c0", "43"], ["c1", "43"]], "")
    assert (found["topics"], found["records_read"]) == (["orders"], "300")
    assert found["plot"]["kind"] == "bars"
    hidden = data(site, "/sql", sql="select value.card.number, value.card.kind from cards", seconds=30)
    assert (hidden["rows"], hidden["error"]) == ([["•••", "visa"]], "")
    lines = site.get("/sql/file", params={"sql": statement, "seconds": 30}).text.splitlines()
    assert lines == ["c,n", "c0,43", "c1,43"]


def test_links_lead_somewhere(site: httpx.Client) -> None:
    """From page to page, by every link that there is, but only a few of each kind."""
    seen: dict[str, int] = {}
    left = ["/"]
    while left:
        path = left.pop()
        kind = re.sub(r"=[^&]*", "=", re.sub(r"\d+", "0", path))
        if seen.get(kind, 0) >= 2:
            continue
        seen[kind] = seen.get(kind, 0) + 1
        answer = site.get(path)
        assert answer.status_code == 200, (path, answer.text[:300])
        if answer.headers["content-type"].startswith("text/html"):
            left += [each.replace("&amp;", "&") for each in re.findall(r'(?:href|src)="(/[^"]*)"', answer.text)]
    assert len(seen) > 30


def test_topics(site: httpx.Client) -> None:
    rows = {row["name"]: row for row in data(site, "/topics", sort="lag", order="desc")["rows"]}
    assert next(iter(rows)) == "orders"
    assert (rows["orders"]["records"], rows["orders"]["groups"], rows["orders"]["partitions"]) == ("300", 2, 3)
    found = data(site, "/topics", q="ORD")
    assert [row["name"] for row in found["rows"]] == ["orders"]
    assert "No topic has “nothing”" in site.get("/topics?q=nothing").text
    (row,) = [row for row in data(site, "/topics/big")["settings"] if row["name"] == "retention.ms"]
    assert (row["value"], row["meaning"], row["is_own"], row["default"]) == ("86400000", "1 day", True, "604800000")
    assert "records are kept" in row["what"]


def test_groups(site: httpx.Client) -> None:
    rows = {row["name"]: row for row in data(site, "/groups")["rows"]}
    assert {name: row["kind"] for name, row in rows.items()} == {"old": "classic", "new": "consumer"}
    assert all((row["state"], row["members"]) == ("Stable", 1) for row in rows.values())
    for name in rows:
        group = data(site, f"/groups/{name}")
        assert group["members"][0]["assigned"] == ["orders: 0, 1, 2"]
        assert group["members"][0]["client_id"] == "reader"
        (place,) = [each for each in group["places"] if each["committed"] is not None]
        assert int(place["lag"]) == int(place["end"]) - 1 > 0
        # The records were written with times of 1970.
        assert place["behind_s"] > 1_700_000_000
        assert {each["partition"] for each in group["places"]} == {0, 1, 2}


def everything(site: httpx.Client, path: str, **query: Any) -> list[dict[str, Any]]:
    """All records, by the links to go on."""
    found: list[dict[str, Any]] = []
    for _ in range(100):
        page = data(site, path, **query)
        found += page["rows"]
        if not page["following"]:
            return found
        query |= {"before" if page["direction"] == "backward" else "at": page["following"]}
    raise AssertionError("it never ends")


@pytest.fixture(scope="module")
def logs() -> Iterator[Broker]:
    """A node with a topic of several segments, codecs, and transactions of which every second one was aborted."""
    topic, random = {"partitions": 2, "segment_bytes": 1 << 20}, Random(1)
    with Broker(topics={"logs": topic}) as broker:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "batch.num.messages": 40}
            writer = Producer({**settings, "transactional.id": codec})
            writer.init_transactions()
            producer = Producer(settings)
            for number in range(600):
                mark = "needle" if number % 50 == 7 else "hay"
                producer.produce(
                    "logs", f"{codec} {number} {mark} {random.randbytes(1000).hex()}", partition=number % 2
                )
            producer.flush()
            for number in range(4):
                writer.begin_transaction()
                writer.produce("logs", f"{codec} needle of transaction {number}", partition=0)
                writer.flush()
                writer.abort_transaction() if number % 2 else writer.commit_transaction()
        yield broker


@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
@pytest.mark.parametrize("begin", ["end", "begin"])
def test_a_search_reads_the_files_of_a_node_beside_it(
    logs: Broker, begin: str, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    ask = Brokers.fetch

    def counted(self: Brokers, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        if request.topics[0].name == "logs":  # not the samples of `site`
            fetched.append(request.topics[0].partitions[0].fetch_offset)
        return ask(self, node_id, request, into)

    monkeypatch.setattr(Brokers, "fetch", counted)
    monkeypatch.setattr(local_logs, "ASKED_S", 600.0)
    query = {"from": begin, "isolation": isolation, "q": "needle", "limit": 200}
    found, fetches = [], []
    for log_dirs in ((), (str(logs.directory),)):
        fetched.clear()
        with console(Options(logs.bootstrap, port=0, log_dirs=log_dirs)) as client:
            found.append(data(client, "/topics/logs/messages", **query))
        fetches.append(len(fetched))
    assert found[0] == found[1]
    assert len(found[0]["rows"]) == 5 * 12 + 5 * (2 if isolation == "committed" else 4)
    by_fetch, by_file = fetches
    if isolation == "uncommitted":
        assert by_file == 2  # one of each partition
    assert by_file < by_fetch / 2


@pytest.mark.parametrize("begin", ["end", "begin"])
def test_all_records_are_read_once(site: httpx.Client, begin: str) -> None:
    rows = everything(site, "/topics/orders/messages", limit=37, **{"from": begin})
    ids = [json.loads(row["value"]["text"])["id"] for row in rows]
    assert sorted(ids) == list(range(300))
    assert {row["key"]["text"] for row in rows} == {f"k{number}" for number in range(5)}
    assert rows[0]["headers"] == [
        {"name": "trace", "value": {"kind": "text", "text": "abc", "bytes": 3, "is_cut": False, "note": ""}}
    ]


def test_searches(site: httpx.Client) -> None:
    def ids(**query: Any) -> list[int]:
        rows = everything(site, "/topics/orders/messages", limit=200, **query)
        return sorted(json.loads(row["value"]["text"])["id"] for row in rows)

    assert ids(q='"c3"') == [number for number in range(300) if number % 7 == 3]
    assert ids(q="k2", **{"in": "key"}) == [number for number in range(300) if number % 5 == 2]
    assert ids(q="k2", **{"in": "value"}) == []
    assert ids(q="trace", **{"in": "header"}) == list(range(300))
    moment = {"from": "time", "time": "1970-01-01T00:00:01.290Z"}
    assert set(ids(**moment)) >= set(range(290, 300))
    assert len(ids(**moment)) < 300
    first = data(site, "/topics/orders/messages", partition=0, limit=1, **{"from": "offset", "offset": "3"})
    assert [row["offset"] for row in first["rows"]] == ["3"]
    assert first["following"] == "0:4"
    assert first["stopped"] == "enough"


def test_a_producer_is_shown_with_its_client(site: httpx.Client) -> None:
    (row,) = data(site, "/topics/written")["producers"]
    assert (row["client_id"], row["user"], row["address"]) == ("shop", "ANONYMOUS", "127.0.0.1")
    assert row["software"] == f"confluent-kafka-python {version()}-rdkafka-{libversion()[0]}"
    assert row["software"] in site.get("/topics/written").text


def test_transactions(site: httpx.Client) -> None:
    def values(isolation: str) -> list[str]:
        return [row["value"]["text"] for row in data(site, "/topics/payments/messages", isolation=isolation)["rows"]]

    assert values("committed") == ["committed"]
    assert sorted(values("uncommitted")) == ["aborted", "committed"]
    rows = data(site, "/transactions", state="all")["rows"]
    states = {row["transactional_id"]: row["state"] for row in rows}
    assert (states["committed"], states["aborted"]) == ("CompleteCommit", "CompleteAbort")


def test_large_values_are_downloaded(site: httpx.Client) -> None:
    (row,) = data(site, "/topics/big/messages")["rows"]
    assert (row["value"]["bytes"], row["value"]["is_cut"], len(row["value"]["text"])) == (len(BIG), True, 4096)
    assert row["key"]["kind"] == "hex"
    answer = site.get("/topics/big/content", params={"partition": 0, "offset": 0})
    assert answer.content == BIG
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''big-0-0-value.bin"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert site.get("/topics/big/content?partition=0&offset=0&part=key").content == b"\xff\x00"
    for query in ("partition=0&offset=7", "partition=9&offset=0"):
        assert site.get(f"/topics/big/content?{query}").status_code == 404


def test_by_the_registry(site: httpx.Client) -> None:
    (row,) = data(site, "/topics/empty-avro/messages")["rows"]
    assert (row["value"]["kind"], json.loads(row["value"]["text"])) == ("avro", {"id": 42})
    assert [row["offset"] for row in data(site, "/topics/empty-avro/messages", q='"id": 42')["rows"]] == ["0"]


def test_masks(site: httpx.Client) -> None:
    for how in ("auto", "json", "text", "hex"):
        page = data(site, "/topics/cards/messages", format=how)
        assert page["is_masked"]
        (row,) = page["rows"]
        assert json.loads(row["value"]["text"]) == {"card": {"number": "•••", "kind": "visa"}}
        assert row["headers"][0]["value"]["text"] == "•••"
    # What is hidden is not found either, else it could be guessed piece by piece.
    for text, count in (("4111", 0), ("s3", 0), ("visa", 1), ("Authorization", 0)):
        assert len(data(site, "/topics/cards/messages", q=text)["rows"]) == count, text
    assert site.get("/topics/cards/content?partition=0&offset=0").status_code == 403


def test_reads_are_logged(site: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        site.get("/topics/payments/messages?q=x")
        site.get("/topics/big/content?partition=0&offset=0")
        site.get("/topics")
    lines: list[Mapping[str, Any]] = [
        getattr(each, "ottla_fields", {}) for each in caplog.records if each.name == "ottla.console.audit"
    ]
    assert [(each["user"], each["topic"], each["search"]) for each in lines] == [
        ("ANONYMOUS", "payments", True),
        ("ANONYMOUS", "big", False),
    ]
    assert lines[1]["ranges"] == "0:0-1"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/topics/none", 404, "There is no topic none"),
        ("/groups/none", 404, "There is no group none"),
        ("/brokers/9", 404, "Brokers that are up: 1"),
        ("/schemas/none", 404, "no subject none"),
        ("/none", 404, "no page /none"),
        ("/topics/orders/messages?" + urlencode({"from": "time", "time": "noon"}), 400, "a date and a time"),
        ("/topics/orders/messages?at=x", 400, "partitions and offsets"),
        ("/topics?page=x", 400, "a number from 1"),
    ],
)
def test_what_is_not_there(site: httpx.Client, path: str, status: int, words: str) -> None:
    for prefix in ("", API):
        answer = site.get(prefix + path)
        assert answer.status_code == status
        assert words in answer.text.replace("/api/v1", "")


def test_empty_pages_say_what_to_do(site: httpx.Client) -> None:
    assert "ottla produce empty hello" in site.get("/topics/empty/messages").text
    assert "ottla consume empty --group readers" in site.get("/topics/empty").text
    assert "ottla quota" in site.get("/security").text


def test_a_cluster_that_is_away() -> None:
    with console(Options("127.0.0.1:1", port=0)) as client:
        answer = client.get("/")
        assert answer.status_code == 503
        assert "could not be asked" in answer.text
        assert client.get(f"{API}/overview").status_code == 503
