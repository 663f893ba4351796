"""Requests over HTTP to servers that trickle, or answer without end: each client gives up in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ottla import httpx_answers
from ottla.cli.server import status
from ottla.client import http, oauth
from ottla.client.security import PLAINTEXT, SecurityFailure, TokenEndpoint
from ottla.config.secret import Secret
from ottla.console.access import provider as console_provider
from ottla.console.access.provider import Provider, ProviderAway
from ottla.console.access.provider_settings import ProviderSettings
from ottla.drivers.nodes import identity_provider
from ottla.drivers.nodes.identity_provider import Endpoint
from ottla.formats.errors import SchemaError
from ottla.http_answers import Limits, TooLong, exchange
from ottla.schemas import client as schemas
from ottla.schemas.client import Registry, RegistryError, RegistryUnreachable
from tests.unit.client.trickling import ENDLESS, TRICKLES, server

WHOLE_S: Final = 0.1
PIECE_S: Final = 0.25
"""For the next byte, of which one comes each 20 ms, or somewhat later on a busy machine."""
LATE_S: Final = 3.0
"""A busy machine has that for what should take WHOLE_S."""
BYTES: Final = 200_000


def by_http_client(port: int, limits: Limits) -> Any:
    return exchange(HTTPConnection("127.0.0.1", port, timeout=5), "GET", "/", limits)


def by_httpx(port: int, limits: Limits) -> Any:
    with httpx_answers.bounded(httpx.Client()) as client:
        return httpx_answers.ask(client, "GET", f"http://127.0.0.1:{port}/", limits.whole_s, limits.bytes_max)


@contextmanager
def in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LATE_S


WAYS: Final = pytest.mark.parametrize("way", [by_http_client, by_httpx])


@WAYS
@pytest.mark.parametrize("part", TRICKLES)
def test_a_part_that_trickles(way: Callable[..., Any], part: str) -> None:
    with server(*TRICKLES[part]) as port, in_time(), pytest.raises((TimeoutError, httpx.TimeoutException)) as caught:
        way(port, Limits(WHOLE_S, BYTES))
    assert str(caught.value) == "no whole answer within 0.1 s"


@WAYS
def test_an_answer_without_end(way: Callable[..., Any]) -> None:
    with server(*ENDLESS, pause_s=0) as port, in_time(), pytest.raises(TooLong, match="more than 200000 bytes"):
        way(port, Limits(60, BYTES))


@WAYS
def test_whole_answers(way: Callable[..., Any]) -> None:
    for begin in (
        b"HTTP/1.0 200 OK\r\n\r\nyes",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nyes",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\ny\r\n2\r\nes\r\n0\r\n\r\n",
    ):
        with closing_server(begin) as port:
            answer = way(port, Limits(30, BYTES))
        assert (answer.content if isinstance(answer, httpx.Response) else answer.body) == b"yes"


@contextmanager
def closing_server(answer: bytes) -> Iterator[int]:
    import socket
    import threading

    def serve() -> None:
        opened, _ = listener.accept()
        with opened:
            opened.recv(65_536)
            opened.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_connection_is_used_again_with_a_time_of_its_own() -> None:
    """httpx keeps connections: the deadline of one request is not that of the next."""
    from tests.unit.drivers.nodes.test_jwks import provider, sending

    with provider(sending(b"yes", **{"Content-Length": "3"})) as url:
        client = httpx_answers.bounded(httpx.Client())
        for _ in range(2):
            assert httpx_answers.ask(client, "GET", url, 30.0, BYTES).content == b"yes"
        client.close()


def test_an_answer_that_is_compressed_is_refused() -> None:
    begin = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nyes"
    with closing_server(begin) as port, pytest.raises(httpx.DecodingError, match="compressed"):
        by_httpx(port, Limits(30, BYTES))


# Who asks


@pytest.mark.parametrize("part", TRICKLES)
def test_a_registry_that_trickles(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "REQUEST_TIMEOUT_S", WHOLE_S)
    with server(*TRICKLES[part]) as port, in_time():
        registry = Registry(f"http://127.0.0.1:{port}", retry_s=0)
        with pytest.raises(RegistryUnreachable, match=f"127.0.0.1:{port}: no whole answer within 0.1 s"):
            registry.subjects()
        registry.close()


def test_a_registry_through_a_proxy_that_trickles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "REQUEST_TIMEOUT_S", WHOLE_S)
    with server(*TRICKLES["headers"]) as port, in_time():
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        registry = Registry("http://registry.example:8081", retry_s=0)
        with pytest.raises(RegistryUnreachable, match=r"no whole answer within 0\.1 s"):
            registry.subjects()
        registry.close()


def test_a_registry_whose_answer_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "ANSWER_BYTES_MAX", BYTES)
    with server(*ENDLESS, pause_s=0) as port, in_time():
        registry = Registry(f"http://127.0.0.1:{port}", retry_s=0)
        with pytest.raises(SchemaError, match="more than 200000 bytes"):
            registry.subjects()
        registry.close()


class Saying(Registry):
    """A registry that answers all requests with the same JSON."""

    def __init__(self, answer: Any) -> None:
        super().__init__("http://127.0.0.1:1", retry_s=0)
        self.answer = answer

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", [None, 1, "x", [], [[]], {}, {"schema": "{}", "references": [1]}, [None, "a"]])
def test_answers_of_another_form(answer: Any) -> None:
    """They were KeyErrors and TypeErrors: an internal error of the console."""
    registry = Saying(answer)
    asked: list[Callable[[], Any]] = [
        lambda: registry.version("s"),
        lambda: registry.register("s", schemas.Schema("{}")),
        lambda: registry.lookup("s", schemas.Schema("{}")),
        lambda: registry.problems("s", schemas.Schema("{}")),
        lambda: registry.compatibility(),
    ]
    for each in asked:
        with pytest.raises(RegistryError, match="another form"):
            each()
    registry.close()


def test_json_that_is_too_deep() -> None:
    answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"[" * 50_000
    with closing_server(answer) as port:
        registry = Registry(f"http://127.0.0.1:{port}", retry_s=0)
        with pytest.raises(RegistryError, match="no schema registry"):
            registry.subjects()
        registry.close()


@pytest.mark.parametrize("part", TRICKLES)
def test_a_token_endpoint_that_trickles(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "ANSWER_SECONDS_MAX", WHOLE_S)
    with server(*TRICKLES[part]) as port, in_time(), pytest.raises(ConnectionError, match="does not answer in time"):
        oauth.token(
            TokenEndpoint(f"http://127.0.0.1:{port}/", "me", Secret("x"), connect_timeout_s=0.05, read_timeout_s=0.05)
        )


def test_a_token_without_end() -> None:
    with server(*ENDLESS, pause_s=0) as port, in_time(), pytest.raises(SecurityFailure, match="more than"):
        oauth.token(TokenEndpoint(f"http://127.0.0.1:{port}/", "me", Secret("x")))


@pytest.mark.parametrize("part", TRICKLES)
def test_an_http_port_that_trickles(part: str) -> None:
    with server(*TRICKLES[part]) as port, in_time(), pytest.raises(TimeoutError):
        http.get("127.0.0.1", port, "/health", PLAINTEXT, WHOLE_S, is_https=False)


def test_an_http_port_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", BYTES)
    with server(*ENDLESS, pause_s=0) as port, in_time(), pytest.raises(HTTPException, match="more than"):
        http.get("127.0.0.1", port, "/health", PLAINTEXT, 60, is_https=False)


@pytest.mark.parametrize(("begin", "then", "pause_s"), [(*TRICKLES["body"], 0.02), (*ENDLESS, 0)])
def test_a_port_of_this_machine(begin: bytes, then: bytes, pause_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ottla server status` looks at all ports of a process."""
    monkeypatch.setattr(status, "PROBE_SECONDS_MAX", WHOLE_S if pause_s else 60.0)
    with server(begin, then, pause_s) as port, in_time():
        assert status._ready([f"127.0.0.1:{port}"]) == {}


@pytest.mark.parametrize("part", TRICKLES)
def test_an_identity_provider_that_trickles(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_provider, "ANSWER_SECONDS_MAX", 2 * PIECE_S)
    with server(*TRICKLES[part]) as port, in_time(), pytest.raises(TimeoutError, match="no whole answer"):
        identity_provider.ask(Endpoint(f"http://127.0.0.1:{port}/", PIECE_S, PIECE_S))


def test_a_login_at_a_provider_that_trickles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A page of the console waits no longer for all of an answer than for its next byte."""
    monkeypatch.setattr(console_provider, "TOKEN_S", WHOLE_S)
    with server(*TRICKLES["body"]) as port, in_time(), pytest.raises(ProviderAway, match="no whole answer"):
        settings = ProviderSettings(id="i", title="I", issuer=f"http://127.0.0.1:{port}", client_id="c")
        Provider(settings, "http://127.0.0.1/login").metadata()
