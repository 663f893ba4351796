"""Every page and its JSON while one broker of three refuses connections, hangs, or died in the middle of an answer: the
page is there in time, shows what the other brokers say, and names the broker where its part is missing. The same with
the schema registry."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, Final, NamedTuple

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from ottla.client.config import ClientConfig
from ottla.console import asking, feeds, hung
from ottla.console import brokers as module
from ottla.console.acts.table import ACTS
from ottla.console.app import PAGES_AT_ONCE, Application
from ottla.console.asking import Asking, Site, User
from ottla.console.brokers import Brokers, NodeAway, patiently
from ottla.console.cluster import read_cluster
from ottla.console.decoding import PageRegistry, Schemas
from ottla.console.live import as_json, event_of
from ottla.console.masks import Masks
from ottla.console.routes import API, EVENTS
from ottla.console.snapshots import Snapshots
from ottla.console.tails import FAILURES_MAX, Tail
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord
from ottla.schemas import access
from ottla.schemas.client import RegistryUnreachable
from ottla.sql import queries
from tests.unit.console.wire_brokers import DIES, HANGS, REFUSES, SLOW, TOPIC, WELL, WireBroker, three_brokers

ILL: Final = 2
"""The node that is not well."""
ANSWER_S: Final = 0.25
ASK_NEXT_S: Final = 0.08
"""In place of 1.5 s and 0.5 s, so that the table takes seconds."""
PAGE_S: Final = 1.5
"""Two waits and what a busy machine adds."""
LIMIT_S: Final = 30.0


class Row(NamedTuple):
    """What a route is asked, and what it answers while node 2 is ill."""

    query: str = ""
    part: str = ""
    """The part that node 2 should have told, whose problem names it; empty where the others know all of it."""
    shows: str = ""
    """What the other nodes say, on the page and in its JSON."""
    status: int = 200


ROWS: Final = {
    "/": Row(part="groups", shows="Broker 2 does not answer; it holds 3 replicas."),
    "/overview": Row(part="groups", shows="Stable-of-3"),
    "/topics": Row(part="records", shows="orders"),
    "/topics/orders": Row(part="offsets", shows="7003"),
    "/topics/orders/messages": Row(part="messages", shows="value of 3"),
    "/topics/orders/tail": Row(part="messages", shows="value of 3"),
    "/topics/orders/tail/events": Row("at=0:0,1:0,2:0", shows="value of 3"),
    "/topics/orders/content": Row("partition=0&offset=0", shows="value of 1"),
    "/groups": Row(part="groups", shows="three"),
    "/groups/one": Row(part="lag", shows="m-of-1"),
    "/group": Row("group=one", part="lag", shows="m-of-1"),
    "/transactions": Row(part="transactions", shows="x-of-3"),
    "/hanging": Row(part="hanging", shows="older"),
    "/security": Row(shows="User:a-of-"),
    "/rights": Row("user=ann&name=orders", shows="topic:orders"),
    "/audit": Row(),
    "/brokers/2": Row(part="settings", shows="127.0.0.1"),
    "/moves": Row(part="sizes", shows="orders"),
    "/settings": Row("show=all", part="node 2", shows="n-of-3"),
    "/schemas": Row(),
    "/schemas/orders-value": Row(status=404),
    "/sql": Row(shows="orders"),
    "/sql/file": Row("sql=select+1"),
    "/pipelines": Row(),
    "/mirror": Row(),
    # Nothing is asked of brokers:
    "/login": Row(status=303),
    "/openapi.json": Row(),
    "/searches/abcdefgh": Row(status=404),
    "/nothing": Row(status=404),
    **{each.path: Row() for each in ACTS if not each.needs_registry},
}  # fmt: skip
FILLED: Final = {
    "{topic}": "orders", "{group:any}": "one", "{broker}": str(ILL), "{subject:any}": "orders-value",
    "{run}": "abcdefgh", "{path:any}": "nothing",
}  # fmt: skip
HOW: Final = (REFUSES, HANGS, DIES)


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[int, WireBroker]]:
    import ottla.pipelines.runner.state  # noqa: F401  # takes a second, which is no page's

    with three_brokers() as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(hung, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(module, "ASK_NEXT_S", ASK_NEXT_S)
    monkeypatch.setattr(queries, "run", lambda *_: queries.Answer())


class Site3:
    """A console of its own for the three brokers."""

    def __init__(self, brokers: dict[int, WireBroker]) -> None:
        self._requests, self._ahead = ThreadPoolExecutor(32, "test request"), ThreadPoolExecutor(4, "test ahead")
        bootstrap = tuple(f"127.0.0.1:{each.port}" for each in brokers.values())
        self.brokers = Brokers(ClientConfig(bootstrap), self._requests)
        self.user = User(None, self.brokers, Snapshots(self._ahead))
        self.application = Application(Site(Masks()), anonymous=self.user)
        self.app = self.application.asgi()

    def __enter__(self) -> Site3:
        return self

    def __exit__(self, *_: object) -> None:
        self.brokers.close()
        for each in (self._ahead, self._requests):
            each.shutdown(wait=False, cancel_futures=True)

    def ask(self, path: str, query: str = "") -> httpx.Response:
        return asyncio.run(self.answer(path, query))

    def act(self, name: str, values: dict[str, Any]) -> httpx.Response:
        async def sent() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(self.app), base_url="http://localhost"
            ) as client:
                return await client.post(f"{API}/acts/{name}", json=values)

        return asyncio.run(sent())

    async def answer(self, path: str, query: str = "") -> httpx.Response:
        """What comes until the answer ends, or until the first event of one without an end."""
        sent: list[dict[str, Any]] = []
        is_there, body = asyncio.Event(), bytearray()

        async def receive() -> dict[str, Any]:
            await is_there.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            body.extend(message.get("body", b""))
            if b"event: records" in body:
                is_there.set()

        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost")],
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
        }
        await asyncio.wait_for(self.app(scope, receive, send), LIMIT_S)  # type: ignore[arg-type]
        return httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=bytes(body))


def routed(site: Site | None = None) -> set[str]:
    """Paths that the application answers GET at."""
    starlette: Starlette = Application(site or Site(Masks()), anonymous=User(None, None, None)).asgi()._app  # type: ignore[arg-type,attr-defined]
    return {each.path for each in starlette.routes if isinstance(each, Route) and "GET" in (each.methods or ())}


def filled(path: str) -> str:
    for name, value in {**FILLED, **{name.replace(":any", ""): value for name, value in FILLED.items()}}.items():
        path = path.replace(name, value)
    return path


PATHS: Final = sorted(filled(path) for path in routed())


def test_every_route_has_a_row() -> None:
    assert {each.removeprefix(API) or "/" for each in PATHS} == ROWS.keys()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("path", PATHS)
def test_a_page_while_a_broker_is_ill(path: str, how: str, brokers: dict[int, WireBroker]) -> None:
    row = ROWS[path.removeprefix(API)]
    brokers[ILL].become(how)
    try:
        with Site3(brokers) as site:
            began = time.monotonic()
            answer = site.ask(path, row.query)
            took_s = time.monotonic() - began
    finally:
        brokers[ILL].become(WELL)
    assert answer.status_code == row.status, answer.text
    assert took_s < PAGE_S
    assert row.shows in answer.text
    is_json = answer.headers.get("content-type", "") == "application/json"
    if is_json and row.part:
        assert "node 2" in answer.json()["problems"][row.part]["sentence"]
    elif row.part:
        assert "node 2" in answer.text
    if answer.headers.get("content-type", "").startswith("text/html"):
        assert answer.text.rstrip().endswith("</html>")


@contextmanager
def becoming(broker: WireBroker, how: str) -> Iterator[None]:
    broker.become(how)
    try:
        yield
    finally:
        broker.become(WELL)


def test_a_hung_node_is_waited_for_once(brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred reloads at once wait for it together, and those behind them not at all."""

    async def reloads(count: int) -> list[httpx.Response]:
        return await asyncio.gather(*(site.answer(f"{API}/topics") for _ in range(count)))

    with Site3(brokers) as site, becoming(brokers[ILL], HANGS):
        before = brokers[ILL].connections
        assert {each.status_code for each in asyncio.run(reloads(100))} == {200}
        made = brokers[ILL].connections - before
        assert made <= 2 * PAGES_AT_ONCE
        for _ in range(10):
            began = time.monotonic()
            answer = site.ask(f"{API}/topics")
            assert time.monotonic() - began < ANSWER_S
            assert "has not answered for" in answer.json()["problems"]["records"]["sentence"]
        assert brokers[ILL].connections - before <= made + 1  # what asks in the background


def test_a_node_that_is_back_is_asked_again(brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung, "AGAIN_S", 0.05)
    with Site3(brokers) as site:
        with becoming(brokers[ILL], HANGS):
            assert "records" in site.ask(f"{API}/topics").json()["problems"]
        until = time.monotonic() + LIMIT_S
        while "records" in site.ask(f"{API}/topics").json()["problems"]:
            assert time.monotonic() < until


@pytest.mark.parametrize("how", HOW)
def test_a_live_tail_names_a_leader_that_is_silent(
    how: str, brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it begins, and not in each round; the tail goes on with the others, and says that it is back."""
    monkeypatch.setattr(hung, "AGAIN_S", 0.05)
    monkeypatch.setattr(feeds, "FRESH_S", 0.0)
    with Site3(brokers) as site:
        tail = Tail(
            Asking(site.user, Site(Masks()), EVENTS.parameters({"topic": TOPIC}, {"at": "0:0,1:0,2:0"})), as_json
        )
        with becoming(brokers[ILL], how):
            found = tail.next_round()
            assert {row["partition"] for row in found.rows} == {0, 2}
            assert found.silent.keys() == {1} and found.silent[1].startswith("node 2: ")
            assert found.problem is None and "node 2: " in event_of(found).decode()
            for _ in range(2 * FAILURES_MAX):
                found = tail.next_round()
                assert found.is_empty and not found.is_over and found.silent.keys() == {1}
        until = time.monotonic() + LIMIT_S
        while not (found := tail.next_round()).is_news:
            assert time.monotonic() < until
        assert (found.silent, found.back, {row["partition"] for row in found.rows}) == ({}, [1], {1})
        assert b'"silent": [], "back": [1]' in event_of(found)
        assert tail.next_round().is_empty
        tail.close()


def test_lags_name_no_node_that_is_back(brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lags are kept for 15 s, but not those that lack what the node should have told."""
    monkeypatch.setattr(hung, "AGAIN_S", 0.05)

    def problems() -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = site.ask(f"{API}/groups", "sort=lag").json()["problems"]
        return found

    with Site3(brokers) as site:
        with becoming(brokers[ILL], HANGS):
            until = time.monotonic() + LIMIT_S
            while "node 2" not in str(problems().get("lag")):
                assert time.monotonic() < until
        began = time.monotonic()
        while problems():
            assert time.monotonic() - began < asking.GROUPS_FRESH_S


@pytest.mark.parametrize("count", [2, 3])
def test_nodes_that_hang_together(count: int, brokers: dict[int, WireBroker]) -> None:
    with Site3(brokers) as site, ExitStack() as ill:
        for node in (1, 2, 3)[:count]:
            ill.enter_context(becoming(brokers[node], HANGS))
        began = time.monotonic()
        answer = site.ask("/topics")
        assert time.monotonic() - began < PAGE_S
        assert answer.status_code == (200 if count < 3 else 503)
        for node in (1, 2, 3)[:count]:
            assert (f"node {node}" if count < 3 else str(brokers[node].port)) in answer.text


def test_a_slow_node_is_waited_for_where_no_page_waits(brokers: dict[int, WireBroker]) -> None:
    """And where something is changed."""
    wanted = {"topics": None}
    brokers[ILL].slow_s = 2 * ANSWER_S
    for patient in (True, False):
        with Site3(brokers) as site, becoming(brokers[ILL], SLOW):
            site.brokers.learn(read_cluster(site.brokers, [TOPIC]).nodes.values(), "c")
            with patiently() if patient else nullcontext():
                if patient:
                    assert site.brokers.ask(ILL, ApiKey.DESCRIBE_LOG_DIRS, wanted)["results"]
                    continue
                with pytest.raises(NodeAway, match="did not answer within"):
                    site.brokers.ask(ILL, ApiKey.DESCRIBE_LOG_DIRS, wanted)
                assert site.brokers.change(ApiKey.DESCRIBE_LOG_DIRS, wanted, ILL)["results"]


def test_a_hung_node_costs_patient_reading_no_more(brokers: dict[int, WireBroker]) -> None:
    with Site3(brokers) as site:
        site.ask(f"{API}/topics")  # connections to it are kept
        with becoming(brokers[ILL], HANGS), patiently():
            began = time.monotonic()
            with pytest.raises(NodeAway):
                site.brokers.ask(ILL, ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []})
            assert time.monotonic() - began < PAGE_S


ACT: Final = {"topic": TOPIC, "before": "1", "preview": True}


def test_an_act_waits_for_a_cluster_that_was_silent(
    brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused at once where each broker, perhaps the only one, had not answered a page before."""
    monkeypatch.setattr(hung, "AGAIN_S", 0.05)
    with Site3(brokers) as site, ThreadPoolExecutor(1) as person:
        site.ask(f"{API}/topics")
        site.user.snapshots.drop()
        with ExitStack() as silent:
            for each in brokers.values():
                silent.enter_context(becoming(each, HANGS))
            assert site.ask(f"{API}/topics").status_code == 503  # now all are known to hang
            began = time.monotonic()
            doing = person.submit(site.act, "delete-records", ACT)
            with pytest.raises(TimeoutError):
                doing.result(4 * ANSWER_S)
        answer = doing.result(LIMIT_S)
        assert time.monotonic() - began < module.REQUEST_TIMEOUT_S
    assert answer.status_code == 200, answer.text


def test_an_act_on_a_cluster_that_stays_silent_ends(
    brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 3 * ANSWER_S)
    with Site3(brokers) as site, ExitStack() as silent:
        for each in brokers.values():
            silent.enter_context(becoming(each, HANGS))
        assert site.ask(f"{API}/topics").status_code == 503
        for _ in range(2):
            began = time.monotonic()
            answer = site.act("delete-records", ACT)
            assert 3 * ANSWER_S <= time.monotonic() - began < 3 * ANSWER_S + PAGE_S
            assert answer.status_code == 503 and "has not answered for" in answer.text


def test_a_group_of_a_hung_node_is_not_said_to_be_missing(brokers: dict[int, WireBroker]) -> None:
    with Site3(brokers) as site, becoming(brokers[ILL], HANGS):
        answer = site.ask(f"{API}/groups/two")
        assert answer.status_code == 404
        assert "at the brokers that answer" in answer.json()["error"]
        assert "node 2" in answer.json()["error"]


def test_settings_of_the_authorizer_are_those_of_a_broker_that_answers(brokers: dict[int, WireBroker]) -> None:
    with Site3(brokers) as site, becoming(brokers[1], HANGS):
        assert site.ask(f"{API}/rights", "user=ann&name=orders").json()["problems"] == {}


# The schema registry

ENCODED: Final = 20
"""Records that a schema of the registry encoded."""
NAMED: Final = {
    "/schemas": "", "/schemas/orders-value": "", "/topics/orders/messages": "not decoded",
    "/topics/orders/tail": "not decoded",
}  # fmt: skip
"""Routes that show what the registry says, and how they say that it is missing."""
QUERIES: Final = {"/topics/orders/messages": "partition=0", "/topics/orders/tail": "partition=0"}
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n"


def paths_asked(opened: socket.socket) -> Iterator[str]:
    """The path of each request of a connection, once all of the request is there. A client may send a body apart from
    its head, and the next request right behind it."""
    with opened.makefile("rb") as requests:
        while line := requests.readline():
            body_bytes = 0
            while header := requests.readline().strip().lower():
                if header.startswith(b"content-length:"):
                    body_bytes = int(header.partition(b":")[2])
            requests.read(body_bytes)
            yield line.split(b" ")[1].decode().partition("?")[0]


class WireRegistry:
    """A registry on a socket, which is well or ill."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        if how == REFUSES:
            self._listener.close()
        else:
            threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        with suppress(OSError), opened:
            for _ in paths_asked(opened):
                self.requests += 1
                if self.how != HANGS:
                    opened.sendall(ANSWER + (b'["orders"]  ' if self.how == WELL else b'["ord'))
                if self.how == DIES:
                    return


@contextmanager
def console(brokers: dict[int, WireBroker], how: str) -> Iterator[tuple[Site3, WireRegistry]]:
    """A console with a registry, and records that need it."""
    wire = WireRegistry(how)
    registry = PageRegistry({access.URL: wire.url})
    before = {node: each.answers.records for node, each in brokers.items()}
    for each in brokers.values():
        each.answers.records = [SimpleRecord(1_000, b"k", b"\0\0\0\0" + bytes([id, 2, 2])) for id in range(ENCODED)]
    try:
        with Site3(brokers) as site:
            made = Site(Masks(), registry=registry, schemas=Schemas(registry), registry_url=wire.url)
            site.application = Application(made, anonymous=site.user)
            site.app = site.application.asgi()
            yield site, wire
    finally:
        for node, records in before.items():
            brokers[node].answers.records = records
        registry.close()
        wire.close()


REGISTRY: Final = PageRegistry({access.URL: "http://127.0.0.1:1"})
REGISTRY_PATHS: Final = sorted(filled(path) for path in routed(Site(Masks(), registry=REGISTRY)))


def test_it_is_every_route_and_those_that_only_a_registry_has() -> None:
    assert {each.removeprefix(API) or "/" for each in REGISTRY_PATHS} > ROWS.keys()
    assert len(REGISTRY_PATHS) > len(routed())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("path", REGISTRY_PATHS)
def test_a_page_while_the_registry_is_ill(path: str, how: str, brokers: dict[int, WireBroker]) -> None:
    route = path.removeprefix(API)
    query = QUERIES.get(route) or (ROWS[route].query if route in ROWS else "")
    with console(brokers, how) as (site, wire):
        began = time.monotonic()
        answer = site.ask(path, query)
        took_s = time.monotonic() - began
    assert took_s < PAGE_S
    assert answer.status_code < 500
    if route in NAMED:
        assert wire.url in answer.text and NAMED[route] in answer.text


def test_a_registry_that_hangs_is_waited_for_once(brokers: dict[int, WireBroker]) -> None:
    with console(brokers, HANGS) as (site, wire):
        began = time.monotonic()
        site.ask(f"{API}/schemas")
        assert ANSWER_S <= time.monotonic() - began < PAGE_S
        for path in ("/schemas", "/topics/orders/messages"):
            began = time.monotonic()
            answer = site.ask(f"{API}{path}")
            assert time.monotonic() - began < ANSWER_S
            assert "has not answered for" in answer.text
        assert wire.requests <= 2  # the first, and the one in the background


class TricklingRegistry(WireRegistry):
    """An answer of a byte at a time, without end: a timeout of each read sees nothing of it."""

    closed = threading.Event()

    def _serve(self, opened: socket.socket) -> None:
        with suppress(OSError), opened:
            opened.recv(65536)
            self.requests += 1
            opened.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            while not self.closed.wait(ANSWER_S / 20):
                opened.sendall(b" ")


def test_a_registry_that_trickles_is_waited_for_once(brokers: dict[int, WireBroker]) -> None:
    wire = TricklingRegistry(WELL)
    registry = PageRegistry({access.URL: wire.url})
    with Site3(brokers) as site:
        site.app = Application(Site(Masks(), registry=registry), anonymous=site.user).asgi()
        for limit_s in (PAGE_S, ANSWER_S):
            began = time.monotonic()
            answer = site.ask(f"{API}/schemas").json()
            assert time.monotonic() - began < limit_s
            assert wire.url in answer["problems"]["schemas"]["sentence"]
    wire.closed.set()
    registry.close()
    wire.close()


def test_a_registry_that_is_back_is_asked_again(
    brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung, "AGAIN_S", 0.05)
    with console(brokers, DIES) as (site, wire):
        assert "schemas" in site.ask(f"{API}/schemas").json()["problems"]
        wire.how = WELL
        until = time.monotonic() + LIMIT_S
        while (found := site.ask(f"{API}/schemas").json())["problems"]:
            assert time.monotonic() < until
        assert found["data"]["subjects"] == ["orders"]


class SlowRegistry(WireRegistry):
    """Subject `s` has fifty versions; each answer takes half of what a page waits for at most."""

    def _serve(self, opened: socket.socket) -> None:
        with suppress(OSError), opened:
            for path in paths_asked(opened):
                self.requests += 1
                threading.Event().wait(ANSWER_S / 2)
                number = path.rpartition("/")[2]
                answer: object = {"compatibilityLevel": "FULL", "is_compatible": True}
                if path.endswith("s/versions"):
                    answer = [*range(1, 51)]
                elif number.isdigit() and path.startswith("/subjects"):
                    answer = {"subject": "s", "version": int(number), "id": int(number), "schema": "{}"}
                body = json.dumps(answer).encode()
                head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                opened.sendall(head.encode() + body)


@pytest.mark.parametrize("budget", [1.0, 10.0])
def test_a_registry_that_is_slow_each_time(
    budget: float, brokers: dict[int, WireBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a subject waits for it in all as long as for one that hangs, and does not say that it hangs."""
    monkeypatch.setattr(hung, "ANSWER_S", budget * ANSWER_S)
    wire = SlowRegistry(WELL)
    registry = PageRegistry({access.URL: wire.url})
    with Site3(brokers) as site:
        site.app = Application(Site(Masks(), registry=registry), anonymous=site.user).asgi()
        for _ in range(2):
            began = time.monotonic()
            answer = site.ask(f"{API}/schemas/s").json()
            assert time.monotonic() - began < budget * ANSWER_S + PAGE_S
            versions = [each["version"] for each in answer["data"]["versions"]]
            assert answer["data"]["version_count"] == 50
            if budget > 1:
                assert (versions, answer["problems"]) == ([*range(50, 0, -1)], {})
            else:
                assert len(versions) < 50 and wire.requests < 20
                assert "is slow" in answer["problems"]["schemas"]["sentence"]
    registry.close()
    wire.close()


def test_a_change_of_schemas_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that answers after the limit of pages has still made the change."""
    wire = WireRegistry(HANGS)
    registry = PageRegistry({access.URL: wire.url})
    limits: list[float] = []
    limit_s = registry._limit_s

    def noted() -> float:
        limits.append(limit_s())
        return 0.01

    monkeypatch.setattr(registry, "_limit_s", noted)
    for method, path in (("GET", "/subjects"), ("POST", "/compatibility/subjects/s/versions"), ("PUT", "/config/s")):
        with pytest.raises(RegistryUnreachable):
            registry.call(method, path)
    assert limits[0] == hung.ANSWER_S and limits[-1] > 5
    registry.close()
    wire.close()
