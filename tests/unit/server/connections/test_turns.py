"""How much is answered in one turn of the loop: who asks for little beside large requests waits for a few of them."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.server.connections.connection import Connection
from tests.unit.server import stub

WRITERS = 24
LARGE_BYTES = 65_536
LARGE_PER_TURN_MAX = 8
"""Two slices of requests of 64 KB: nobody counts before the first of them is used up."""


def received(connection: Connection, data: bytes) -> None:
    """What the loop does when it has read `data`."""
    view = connection.get_buffer(-1)
    view[: len(data)] = data
    connection.buffer_updated(len(data))


def test_a_turn_has_few_large_requests(monkeypatch: Any) -> None:
    begun: list[int] = []

    def handle(context: Any, request: bytes) -> Any:
        begun.append(context.correlation_id)
        return stub.answer(context.correlation_id, b"")

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (listener, port):
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(WRITERS + 1)]
            for reader, writer in clients:  # so that all are connected
                writer.write(stub.frame(b""))
                await stub.read_frame(reader)
            begun.clear()
            *writers, bystander = listener.connections
            for number, connection in enumerate(writers):
                received(connection, stub.frame(bytes(LARGE_BYTES), number))
            assert 0 < len(begun) <= LARGE_PER_TURN_MAX
            received(bystander, stub.frame(b"", WRITERS))
            before = len(begun)
            answers = [(await stub.read_frame(reader))[0] for reader, _ in clients]
            assert begun.index(WRITERS) == before, "it is served before the large ones that wait"
            assert sorted(answers) == [*range(WRITERS + 1)]
            for _, writer in clients:
                writer.close()

    stub.run(test())
