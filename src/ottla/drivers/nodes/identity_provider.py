"""Requests to an identity provider over HTTPS: its keys (`jwks.py`) and tokens for this node (`oauth_tokens.py`).

Whoever may name a URL may have a node read what it reaches, so URLs come from the node's own file alone, lead to https
(or to this machine, for tests), and an answer that leads elsewhere is not followed. A request blocks, so each has a
thread of its own, which the end of the process does not wait for.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from ottla.config.listener_settings import PREFIX
from ottla.drivers.nodes.jaas_settings import in_file, jaas_name, jaas_of
from ottla.errors import OttlaError
from ottla.http_answers import Limits, exchange
from ottla.security.sasl import OAUTHBEARER

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

ANSWER_BYTES_MAX: Final = 1 << 20
"""A key set or a token has some kilobytes."""
ANSWER_SECONDS_MAX: Final = 30.0
"""For a request and all of its answer, however slowly it comes; or the two timeouts of the endpoint, where they are
more."""
REFUSAL_BYTES_MAX: Final = 4096
"""What is kept of an answer that is a refusal: its error has a few words."""


class Refusal(ValueError):
    """An answer whose status is not 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"answered with status {status}, which is not followed or read")
        self.status, self.body = status, body


class Endpoint(NamedTuple):
    """A URL of an identity provider, and how it is reached."""

    url: str
    connect_s: float = 10.0
    """`sasl.login.connect.timeout.ms`"""
    read_s: float = 10.0
    """`sasl.login.read.timeout.ms`"""
    ca_file: str | None = None
    """Certificates that are trusted instead of the system's, PEM."""
    whole_s: float | None = None
    """For a request and all of its answer; None: ANSWER_SECONDS_MAX."""


def endpoint_of(config: ServerConfig, listener: str, name: str) -> Endpoint | None:
    """The URL that setting `name` of OAUTHBEARER has for a listener; None where it has none. Raises OttlaError."""
    url: str | None = in_file(config, listener, OAUTHBEARER, name)
    if url is None:
        return None
    module = jaas_of(config, listener, OAUTHBEARER)
    options = {} if module is None else module.options
    ca_file = options.get("ssl.truststore.location")
    if ca_file is not None and options.get("ssl.truststore.type", "") != "PEM":
        setting = jaas_name(listener, OAUTHBEARER)
        raise OttlaError(f'{setting}: ssl.truststore.location needs ssl.truststore.type="PEM"')
    connect_ms = in_file(config, listener, OAUTHBEARER, "sasl.login.connect.timeout.ms")
    read_ms = in_file(config, listener, OAUTHBEARER, "sasl.login.read.timeout.ms")
    return Endpoint(
        check_url(f"{PREFIX}{listener.lower()}.{OAUTHBEARER.lower()}.{name}", url),
        connect_s=(connect_ms or 10_000) / 1000,
        read_s=(read_ms or 10_000) / 1000,
        ca_file=None if ca_file is None else ca_file.reveal(),
    )


def check_url(setting: str, url: str) -> str:
    """The same URL. Raises OttlaError for one that nodes do not ask."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise OttlaError(f"{setting}: {url[:200]!r} is not a URL") from None
    host = parts.hostname or ""
    is_plain = url.isprintable() and " " not in url and parts.username is None and parts.password is None
    if not host or port == 0 or not is_plain:
        raise OttlaError(f"{setting} is not of the form https://host/path")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_this_machine(host)):
        raise OttlaError(
            f"{setting}: {url[:200]!r} must be https, as its answer decides who may log in; plain http only to this "
            f"machine"
        )
    return url


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ask(endpoint: Endpoint, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The answer to a GET, or a POST with a body. Blocks. Raises OSError or ValueError (Refusal)."""
    parts = urlsplit(endpoint.url)
    host = parts.hostname or ""
    connection: HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=endpoint.ca_file)
        connection = HTTPSConnection(host, parts.port, timeout=endpoint.connect_s, context=context)
    else:
        connection = HTTPConnection(host, parts.port, timeout=endpoint.connect_s)
    whole_s = endpoint.whole_s
    if whole_s is None:
        whole_s = max(ANSWER_SECONDS_MAX, endpoint.connect_s + endpoint.read_s)
    limits = Limits(whole_s, ANSWER_BYTES_MAX, endpoint.read_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    known = {"Accept": "application/json", "Connection": "close", **(headers or {})}
    try:
        answer = exchange(connection, "GET" if body is None else "POST", path, limits, body=body, headers=known)
    except HTTPException as error:
        raise ValueError(f"not an answer in HTTP: {type(error).__name__}") from error
    if answer.status != 200:
        raise Refusal(answer.status, answer.body[:REFUSAL_BYTES_MAX])
    return answer.body


async def in_a_thread(work: Callable[[], Any]) -> Any:
    """The result of something that blocks."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done(result: Any, error: Exception | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(done, result, failure)

    threading.Thread(target=run, name="ottla-identity", daemon=True).start()
    return await future
