"""A connection is muted for less than a timer of uvloop can tell: until the latest time that was asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.server.connections.connection import Connection
from tests.unit.server import stub


def test_a_connection_that_is_muted_again_and_again_for_less_than_a_millisecond(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening() as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"first"))
            assert await stub.read_frame(reader) == (1, b"first")
            (connection,) = listener.connections
            assert isinstance(connection, Connection)
            for seconds in (0.0001, 0.0004, 0.0, 0.002, 0.0001):
                connection.mute(seconds)
            writer.write(stub.frame(b"second", 2))
            assert await stub.read_frame(reader) == (2, b"second")
            writer.close()

    stub.run(test())
