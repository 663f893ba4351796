"""The keys of an identity provider: fetched from nowhere else, refreshed, kept while the provider is away."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ottla.drivers.nodes.identity_provider import Endpoint, ask, check_url
from ottla.drivers.nodes.jwks import JwksKeys, JwksSettings
from ottla.errors import OttlaError
from tests.unit.security.test_jwt import jwk, rsa_key
from tests.unit.server.stub import run, until

KEYS = json.dumps({"keys": [jwk(rsa_key())]}).encode()


@contextmanager
def provider(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_POST = do_GET

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sending(data: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def settings(url: str, **more: Any) -> JwksSettings:
    return JwksSettings(Endpoint(url), **{"refresh_s": 3600, "backoff_s": 0.01, "backoff_s_max": 0.02, **more})


def test_a_fetch() -> None:
    with provider(sending(KEYS)) as url:
        assert ask(Endpoint(f"{url}/keys?a=b")) == KEYS


@pytest.mark.parametrize("status", [301, 302, 307, 308, 404, 500])
def test_no_answer_leads_elsewhere(status: int) -> None:
    """CVE-2025-27817: a redirect could have a node read what only it reaches."""
    asked = []
    with (
        provider(lambda handler: asked.append(handler.path)) as other,
        provider(sending(KEYS, status, Location=f"{other}/secret")) as url,
        pytest.raises(ValueError, match=str(status)),
    ):
        ask(Endpoint(url))
    assert asked == []


def test_an_answer_is_bounded() -> None:
    with provider(sending(bytes(2 << 20))) as url, pytest.raises(ValueError, match="more than"):
        ask(Endpoint(url))
    with provider(sending(KEYS)) as url, pytest.raises(TimeoutError):
        ask(Endpoint(url, whole_s=-1.0))


@pytest.mark.parametrize(
    "url",
    [
        "https://issuer/keys",
        "https://issuer:8443/keys?x=y",
        "http://127.0.0.1:80/keys",
        "http://localhost/keys",
        "http://[::1]:8080/keys",
    ],
)
def test_urls_that_are_fetched(url: str) -> None:
    assert check_url("setting", url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///etc/passwd",
        "http://issuer/keys",
        "http://localhost.example.org/",
        "http://169.254.169.254/latest",
        "ftp://issuer/keys",
        "https:///keys",
        "https://issuer:x/keys",
        "https://a:b@issuer/keys",
        "https://issuer/\nkeys",
        "https://iss uer/",
        "jar:file:x",
        "https://issuer:0/",
    ],
)
def test_urls_that_are_not(url: str) -> None:
    with pytest.raises(OttlaError):
        check_url("setting", url)


def test_keys_come_and_stay(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[bytes | Exception] = [OSError("away"), ValueError("odd"), KEYS, OSError("away"), KEYS]
    fetched = []

    def get(endpoint: Endpoint) -> bytes:
        answer = answers[min(len(fetched), len(answers) - 1)]
        fetched.append(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def test() -> None:
        found = JwksKeys(settings("https://issuer"), random.Random(1), get)
        assert found.keys.keys == ()
        found.start()
        await found.wait_fetched()
        assert len(fetched) == 3
        first = found.keys
        found.expedite()
        await until(lambda: len(fetched) >= 5 and found.keys is not first)
        assert [each.kid for each in found.keys.keys] == ["one"]
        found.expedite()  # too soon after the last one: anyone can send a token with an unknown key
        await asyncio.sleep(0.05)
        assert len(fetched) == 5
        found.stop()

    run(test())
    assert len([each for each in caplog.records if "cannot be fetched" in each.message]) == 1


def test_keys_are_refreshed() -> None:
    fetched = []

    async def test() -> None:
        def get(endpoint: Endpoint) -> bytes:
            fetched.append(1)
            return KEYS

        found = JwksKeys(settings("https://issuer", refresh_s=0.01), random.Random(1), get)
        found.start()
        await until(lambda: len(fetched) >= 3)
        found.stop()

    run(test())
