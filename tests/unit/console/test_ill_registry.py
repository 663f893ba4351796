"""Every page and its JSON while the schema registry refuses connections, hangs, or died in the middle of an answer: the
page is there in time, and names the registry where its part is missing; a registry that hangs is waited for once."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest

from ottla.console import hung
from ottla.console.app import Application
from ottla.console.asking import Site
from ottla.console.decoding import PageRegistry, Schemas
from ottla.console.masks import Masks
from ottla.console.routes import API
from ottla.protocol.records.record_batch import SimpleRecord
from ottla.schemas import access
from ottla.schemas.client import RegistryUnreachable
from tests.unit.console.test_ill_brokers import (
    ANSWER_S,
    HOW,
    LIMIT_S,
    PAGE_S,
    ROWS,
    Site3,
    brokers,
    filled,
    quick,
    routed,
)
from tests.unit.console.wire_brokers import DIES, HANGS, REFUSES, WELL, WireBroker

__all__ = ["brokers", "quick"]

ENCODED: Final = 20
"""Records that a schema of the registry encoded."""
NAMED: Final = {
    "/schemas": "", "/schemas/orders-value": "", "/topics/orders/messages": "not decoded",
    "/topics/orders/tail": "not decoded",
}  # fmt: skip
"""Routes that show what the registry says, and how they say that it is missing."""
QUERIES: Final = {"/topics/orders/messages": "partition=0", "/topics/orders/tail": "partition=0"}
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n"


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
            while opened.recv(65536):
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
PATHS: Final = sorted(filled(path) for path in routed(Site(Masks(), registry=REGISTRY)))


def test_it_is_every_route_and_those_that_only_a_registry_has() -> None:
    assert {each.removeprefix(API) or "/" for each in PATHS} > ROWS.keys()
    assert len(PATHS) > len(routed())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("path", PATHS)
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
