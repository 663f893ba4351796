"""How a connection ends that its client or a request has spoiled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from ottla.logs import fields
from ottla.protocol.messages import MalformedRequest

if TYPE_CHECKING:
    from ottla.server.connections.outbox import Outbox

_REQUESTS = logging.getLogger("ottla.requests")


class Ending(Protocol):
    """A connection, as its end is seen here: `connection.CompiledConnection`."""

    client_host: str
    closing: bool
    outbox: Outbox
    _transport: Any

    @property
    def _listener(self) -> Any: ...
    @property
    def idle(self) -> bool: ...
    def _drop_own(self) -> None: ...
    def _pause(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


def refuse(connection: Ending, error: Exception) -> None:
    """Bad bytes: what is due goes out, then this connection ends; the others do not notice."""
    if isinstance(error, MalformedRequest):
        connection._listener.log_refused("closing a connection", connection.client_host, str(error))
    connection.outbox.flush()
    connection._drop_own()
    connection.closing = True
    if connection._transport is not None:
        connection._pause()
        if connection.idle:
            connection.close()


def fail(connection: Ending, error: Exception) -> None:
    """An internal error: log it, and end the connection, whose client would wait for ever."""
    what = "closing a connection: its request failed with an internal error"
    _REQUESTS.error(what, exc_info=error, extra=fields(client=connection.client_host))
    connection.abort()
