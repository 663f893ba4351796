"""The HTTP port of a node: accepts connections, and answers GET and HEAD with the pages of `pages.py`.

h11 knows the protocol; here are the limits that keep a hostile client from hurting the broker: connections, bytes of a
request's head, seconds for a request to come in and an answer to go out. One request of a connection is handled at a
time and nothing is read meanwhile. Who asks is found by `logins.py`, what he may see is declared in `pages.py`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

import h11

from ottla.config.checks import parse_address
from ottla.config.listeners import HTTP, OVER_TLS
from ottla.logs import fields
from ottla.security.principal_mapping import NoMatchingRule
from ottla.server.http.callers import ANONYMOUS, Caller, Unauthorized
from ottla.server.http.pages import Answer, Pages, failed
from ottla.server.listeners.listener import cannot_listen

if TYPE_CHECKING:
    from ottla.network import Acceptor
    from ottla.server.http.logins import HttpLogins
    from ottla.server.http.shown import ShownNode

_LOG = logging.getLogger("ottla.requests")

CONNECTIONS_MAX = 64
"""Scrapers, probes and a person with a browser need a few; beyond, the one that has been quiet longest goes, of those
that have not logged in if there are any."""

HEAD_BYTES_MAX = 16_384
"""Request line and headers together; browsers send up to 4 KB here."""

BODY_BYTES_MAX = 65_536
"""A body is of no use, and read only to find the next request."""

REQUEST_SECONDS_MAX = 10.0
"""Time from the first byte of a request to its last."""

IDLE_SECONDS_MAX = 120.0
"""Between requests: longer than usual scrape intervals, so that Prometheus keeps its connection."""

SEND_SECONDS_MAX = 30.0
"""For an answer to be taken by its client."""

SEND_BYTES = 65_536
"""Written at once before looking whether the client takes it."""


class HttpServer:
    """Listens at `ottla.http.listener`."""

    def __init__(self, node: ShownNode) -> None:
        config = node.config
        self._setting: str = config.ottla_http_listener
        self.is_secured = config.ottla_http_security_protocol in OVER_TLS
        self.logins: HttpLogins | None = None
        """None where no login is asked for."""
        self.first_request_s = min(config.ottla_login_timeout_ms / 1000, IDLE_SECONDS_MAX)
        """How long a client may take for its first request where a login is asked for."""
        self._node = node
        self.pages = Pages(node)
        self.port = 0
        """The one that it really has, once started."""
        self.connections: dict[HttpConnection, None] = {}
        """Least recently active first."""
        self._network = node.plain_network
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Raises OttlaError if the address cannot be had, and for settings by which nobody could log in."""
        if self._node.config.ottla_http_security_protocol.startswith("SASL_"):
            self.logins = logins_of(self._node)
        if self.is_secured:
            assert self._node.tls is not None, "the settings say so"
            self._network = self._node.tls.network_of(HTTP)
        address = parse_address(self._setting)
        assert address is not None, "the setting was checked"
        host, port = address
        try:
            self._acceptor = await self._network.listen(lambda: HttpConnection(self), host, port)
        except OSError as error:
            raise cannot_listen(f"ottla.http.listener={self._setting}", error) from error
        self.port = self._acceptor.port
        self._acceptor.start()
        self.pages.start()

    @property
    def url(self) -> str:
        host, _ = parse_address(self._setting) or ("", 0)
        shown = f"[{host}]" if ":" in host else host or "localhost"
        return f"{'https' if self.is_secured else 'http'}://{shown}:{self.port}"

    def name_of(self, subject: str) -> str | None:
        """The user of a client's certificate; None where the rules give its subject no name."""
        tls = self._node.tls
        mapper = None if tls is None else tls.mapper_of(HTTP)
        try:
            return f"User:{subject if mapper is None else mapper.name_of(subject)}"
        except NoMatchingRule as error:
            _LOG.warning("a client's certificate has no user", extra=fields(listener=HTTP, error=str(error)))
            return None

    async def stop(self) -> None:
        """Close at once: /ready has said before that the node is stopping."""
        self.pages.stop()
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        tasks = [each.task for each in self.connections if each.task is not None]
        for connection in list(self.connections):
            connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def admit(self, connection: HttpConnection) -> None:
        while len(self.connections) >= CONNECTIONS_MAX:
            quiet = next((each for each in self.connections if not each.is_known), next(iter(self.connections)))
            self.connections.pop(quiet)
            quiet.abort()
        self.connections[connection] = None

    def touch(self, connection: HttpConnection) -> None:
        if self.connections.pop(connection, 0) is None:
            self.connections[connection] = None


def logins_of(node: ShownNode) -> HttpLogins:
    """The logins of a node's HTTP port. Raises OttlaError."""
    from ottla.server.http import logins
    from ottla.server.listeners.sasl_listeners import ScramUsers

    config, run = node.config, node.fs.run
    mechanisms = logins.mechanisms_of(config)
    tokens = logins.tokens_of(config, mechanisms, node.clock, node.random, run)
    if isinstance(tokens, logins.JwksTokens):
        tokens.keys.start()
        node.on_stop.append(tokens.keys.stop)
    passwords = logins.KnownPasswords.of(config, mechanisms, lambda mechanism: ScramUsers(node, mechanism))
    found = logins.HttpLogins(config, run, passwords, tokens)
    found.audit_of = lambda: node.audit  # it begins after this port
    return found


class HttpConnection(asyncio.Protocol):
    """One client: bytes in, one task for each request."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.Handle | None = None
        self._began = False
        """Whether a part of the next request is here."""
        self._request: h11.Request | None = None
        self._body_bytes = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._eof = False
        self.task: asyncio.Task[None] | None = None
        self.client_host = ""
        self.is_known = False
        """Whether a request of this connection has come with a login."""
        self._certificate: str | None = None
        """The user of the client's certificate."""

    # Events of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's own kind
        transport.set_write_buffer_limits(SEND_BYTES)
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if isinstance(peer, tuple) else "localhost"
        self._server.admit(self)
        self._allow(IDLE_SECONDS_MAX if self._server.logins is None else self._server.first_request_s)

    def secured(self, subject: str | None) -> None:
        """Called by `ottla.tls_network` when the handshake is done, with the subject of the client's certificate."""
        if subject is not None:
            self._certificate = self._server.name_of(subject)
            if self._certificate is None:
                self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.connections.pop(self, None)
        self._drained.set()
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def data_received(self, data: bytes) -> None:
        self._server.touch(self)
        if not self._began:
            self._began = True
            self._allow(REQUEST_SECONDS_MAX)
        self._http.receive_data(data)
        self._proceed()

    def eof_received(self) -> bool:
        """The answer that is due still goes out."""
        self._eof = True
        return self.task is not None

    # Requests.

    def _proceed(self) -> None:
        """Take what has arrived, until a request is whole or more is needed."""
        while self.task is None and self._transport is not None:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._begin(failed(error.error_status_hint, str(error)), close=True)
                return
            if isinstance(event, h11.Request):
                self._request = event
                self._body_bytes = 0
                if self._http.they_are_waiting_for_100_continue:
                    self._begin(failed(417, "a request body is not allowed"), close=True)
                    return
            elif isinstance(event, h11.Data):
                self._body_bytes += len(event.data)
                if self._body_bytes > BODY_BYTES_MAX:
                    self._begin(failed(413, "a request body is not allowed"), close=True)
                    return
            elif isinstance(event, h11.EndOfMessage):
                assert self._request is not None
                self._begin(self._request)
                return
            else:  # NEED_DATA, PAUSED, ConnectionClosed
                if isinstance(event, h11.ConnectionClosed):
                    self._close()
                return

    def _begin(self, asked: h11.Request | Answer, *, close: bool = False) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._allow(None)
        self.task = self._loop.create_task(self._answer(asked, close))

    async def _answer(self, asked: h11.Request | Answer, close: bool) -> None:
        try:
            answer = asked if isinstance(asked, Answer) else await self._page(asked)
            close = close or answer.closes
            async with asyncio.timeout(SEND_SECONDS_MAX):
                await self._send(answer, close, is_head=isinstance(asked, h11.Request) and asked.method == b"HEAD")
        except (TimeoutError, h11.LocalProtocolError):
            self.abort()
            return
        finally:
            self.task = None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE and not self._eof:
            self._http.start_next_cycle()
            self._began = bool(self._http.trailing_data[0])
            self._allow(REQUEST_SECONDS_MAX if self._began else IDLE_SECONDS_MAX)
            if self._transport is not None:
                self._transport.resume_reading()
            self._proceed()
        else:
            self._close()

    async def _page(self, asked: h11.Request) -> Answer:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in asked.headers}
        path = asked.target.decode("latin-1").partition("?")[0]
        if sum(name == b"authorization" for name, _ in asked.headers) > 1:
            return failed(400, "more than one Authorization")
        try:
            caller = await self._caller(headers.get("authorization"))
            if isinstance(caller, Answer):
                return caller
            return await self._server.pages.answer(asked.method.decode("latin-1"), path, headers, caller)
        except Exception as error:  # a bug must not leave the client waiting
            _LOG.error("an HTTP request failed", exc_info=error, extra=fields(path=path))
            return failed(500, "internal error: the node's log has the traceback")

    async def _caller(self, authorization: str | None) -> Caller | Answer:
        """The sender of a request, or the answer to wrong credentials."""
        logins = self._server.logins
        if logins is None:
            return Caller(self._certificate or ANONYMOUS, self.client_host, True)
        try:
            caller = await logins.identify(authorization, self._certificate, self.client_host)
        except Unauthorized as error:
            return self._server.pages.unauthorized(str(error), logins.challenges, closes=True)
        self.is_known = caller.is_known
        return caller

    async def _send(self, answer: Answer, close: bool, *, is_head: bool) -> None:
        """Raises TimeoutError from outside when the client takes nothing."""
        http = self._http
        headers = [*answer.headers, ("Content-Length", str(answer.length)), ("Cache-Control", "no-store")]
        if close:
            headers.append(("Connection", "close"))
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        self._write(http.send(h11.Response(status_code=answer.status, headers=headers)))
        if not is_head:
            for piece in answer.body:
                for position in range(0, len(piece), SEND_BYTES):
                    self._write(http.send(h11.Data(data=piece[position : position + SEND_BYTES])))
                    await self._drained.wait()
        self._write(http.send(h11.EndOfMessage()))
        await self._drained.wait()

    def _write(self, data: bytes | None) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    # Time and ends.

    def _allow(self, seconds: float | None) -> None:
        """Give the client so long for what comes next."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self.abort)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._allow(SEND_SECONDS_MAX)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
