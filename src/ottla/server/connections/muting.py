"""A client beyond a quota is not listened to for a while."""

from __future__ import annotations

from asyncio import Handle
from functools import partial
from typing import Any, Protocol


class Muted(Protocol):
    """A connection, as it is seen here: `connection.CompiledConnection`."""

    _muted: bool
    _muted_until_s: float
    _unmuting: Handle | None

    @property
    def _listener(self) -> Any: ...
    def _go_on(self) -> None: ...


def mute(connection: Muted, seconds: float) -> None:
    """Handle nothing more of a connection for so long, or as long as it is muted already."""
    loop = connection._listener.loop
    until_s = loop.time() + seconds
    if connection._unmuting is not None:
        if connection._muted_until_s >= until_s:
            return
        connection._unmuting.cancel()
    connection._muted = True
    connection._muted_until_s = until_s
    connection._unmuting = loop.call_at(until_s, partial(_unmute, connection))


def _unmute(connection: Muted) -> None:
    connection._unmuting = None
    connection._muted = False
    connection._go_on()
