"""A port of a registry or a console: TLS, and limits on connections before a client is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from uvicorn.protocols.http.h11_impl import H11Protocol

from ottla.clock import SystemClock
from ottla.config.listeners import HTTP, OVER_TLS
from ottla.filesystem import OsFileSystem
from ottla.network import SystemNetwork
from ottla.tls_connection import TlsConnection

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.server.listeners.node_tls import NodeTls

_LOG = logging.getLogger("ottla.registry")

CONNECTIONS_MAX: Final = 1000
"""Beyond, one that has not logged in goes, or else the oldest."""
REQUEST_SECONDS_MAX: Final = 10.0
"""For the head of a request: from the connection, or from its first byte, to its last."""


class Door(Protocol):
    """What the connections of one port share: this registry's `Guard`, or another server's own."""

    @property
    def connections(self) -> dict[GuardedProtocol, None]:
        """In the order in which they were made."""
        ...

    def user_of(self, subject: str) -> str | None:
        """The user of a client's certificate; None where its subject has no name."""
        ...


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with a limit on the seconds that the head of a request takes, and with the client's user."""

    def __init__(self, guard: Door, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.user: str | None = None
        """The user of the client's certificate."""
        self.is_known = False
        """Whether a request of this connection has come with a login."""
        self._guard = guard
        self._deadline: asyncio.Handle | None = None
        application = self.app

        async def with_connection(scope: Any, receive: Any, send: Any) -> None:
            scope["ottla.connection"] = self
            await application(scope, receive, send)

        self.app = with_connection

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._admit()
        self._arm()

    def _admit(self) -> None:
        connections = self._guard.connections
        while len(connections) >= CONNECTIONS_MAX:
            gone = next((each for each in connections if not each.is_known), next(iter(connections)))
            connections.pop(gone)
            gone.transport.abort()
        connections[self] = None

    def secured(self, subject: str | None) -> None:
        """Called by `ottla.tls_network` when the handshake is done, with the subject of the client's certificate."""
        if subject is not None:
            self.user = self._guard.user_of(subject)
            if self.user is None:
                _LOG.warning("a client's certificate has no user")
                self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._guard.connections.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif self._deadline is None:
            self._arm()

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS_MAX, self.transport.abort)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class PortTls:
    """TLS of a port, where its settings say so."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises OttlaError for certificates that cannot be read."""
        self.is_secured = config.ottla_http_security_protocol in OVER_TLS
        self.node_tls: NodeTls | None = None
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        if self.is_secured:
            from ottla.server.listeners.node_tls import NodeTls

            self.node_tls = NodeTls(config, OsFileSystem(), SystemClock(), SystemNetwork())

    async def start(self) -> None:
        """Watch the certificates from now on."""
        if self.node_tls is not None:
            self.node_tls.start(self._closers)

    async def stop(self) -> None:
        while self._closers:
            await self._closers.pop()()

    def protocol(self, door: Door, arguments: dict[str, Any]) -> asyncio.BaseProtocol:
        """Makes the protocol of a connection, as uvicorn asks for it."""
        if self.node_tls is None:
            return GuardedProtocol(door, **arguments)
        return TlsConnection(self.node_tls.network_of(HTTP), lambda: GuardedProtocol(door, **arguments))
