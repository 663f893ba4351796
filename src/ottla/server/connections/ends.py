"""How a connection ends: its client closes it, or spoils it, or a request does; or the node stops serving it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from ottla.logs import fields
from ottla.protocol.messages import MalformedRequest
from ottla.server.api import CloseConnection
from ottla.server.connections import receiving

if TYPE_CHECKING:
    from asyncio import Handle

    from ottla.server.api import Slot
    from ottla.server.connections.outbox import Outbox

_REQUESTS = logging.getLogger("ottla.requests")


class Ending(receiving.Receiver, Protocol):
    """A connection, as its end is seen here: `connection.CompiledConnection`."""

    closing: bool
    outbox: Outbox
    quotas: Any
    _ended: bool
    _linger: Handle | None
    _queued: bool
    _transport: Any
    _unmuting: Handle | None

    @property
    def shortcuts(self) -> dict[int, Any]: ...
    @property
    def idle(self) -> bool: ...
    def close(self) -> None: ...


def lost(connection: Ending) -> None:
    """The connection is closed: give back what it has, and abandon what its client will not get."""
    connection.outbox.close()
    for timer in (connection._linger, connection._unmuting):
        if timer is not None:
            timer.cancel()
    for slot in connection._pending:
        _abandon(connection, slot)
    connection._pending.clear()
    connection.shortcuts.clear()
    connection._waiting = connection.quotas = None  # like shortcuts, they refer to this connection
    connection._drop_own()
    if connection._lent is not None:
        receiving.return_lent(connection)
    connection._listener.buffers.over(connection)
    connection._listener.remove(connection)


def _abandon(connection: Ending, slot: Slot) -> None:
    """Abandon a response. A request that has begun to change something still completes: records that were appended
    must still be committed, a topic must not be half created."""
    if slot.deferred is not None:
        slot.deferred.cancel()
    if slot.task is not None:
        connection._listener.let_finish(slot.task)


def half_close(connection: Ending) -> bool:
    """The peer has closed its sending side. Whether this side stays open, for the answers that are due."""
    if connection._queued or connection._muted:
        connection._ended = True  # what has arrived is begun first
    elif not connection._pending and not connection.outbox.queued:
        return False
    else:
        connection.closing = True
    # Whoever went away altogether looks the same, and a long poll may be asked to last for days.
    loop = connection._listener.loop
    connection._linger = loop.call_later(receiving.HALF_CLOSED_SECONDS_MAX, connection.abort)
    return True


def finish(connection: Ending) -> None:
    """The node stops: begin no further request, and close once the begun ones are answered."""
    connection.closing = True
    connection._drop_own()
    if connection.idle:
        connection.close()
    else:
        connection._pause()


def end_by(connection: Ending, error: Exception, slot: Slot | None = None) -> None:
    """End a connection for an error; `slot` has the request that was answered with it, if others may follow that."""
    if not isinstance(error, MalformedRequest | CloseConnection):
        _fail(connection, error)
        return
    if slot is not None:
        while connection._pending[-1] is not slot:  # what was asked for after it gets no answer
            _abandon(connection, connection._pending.pop())
        connection._pending.pop()
    _refuse(connection, error)


def _refuse(connection: Ending, error: Exception) -> None:
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


def _fail(connection: Ending, error: Exception) -> None:
    """An internal error: log it, and end the connection, whose client would wait for ever."""
    what = "closing a connection: its request failed with an internal error"
    _REQUESTS.error(what, exc_info=error, extra=fields(client=connection.client_host))
    connection.abort()
