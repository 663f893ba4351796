"""What connections hold of frames that have not wholly arrived: what was sent, not what was claimed."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from ottla import memory
from ottla.server import api, connection, listener
from tests.unit.server import stub

CLIENTS = 20
SIZES = (1, 4, 5, 1000, api.HEAD_BYTES_MAX, api.HEAD_BYTES_MAX + 1, 100_000, 1_500_000)


def held(client: connection.Connection) -> int:
    return len(client._head) + len(client._own or b"")


def received(client: connection.Connection) -> int:
    return len(client._head) + client._end - client._start


@pytest.mark.parametrize("size", SIZES)
def test_half_a_frame_takes_no_more_than_twice_what_was_sent(monkeypatch: Any, size: int) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening(request_bytes_max=200_000_000) as (listening, port):
            writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(CLIENTS)]
            for writer in writers:
                writer.write((struct.pack(">i", 100_000_000) + bytes(size))[:size])
            clients = listening.connections
            await stub.until(lambda: len(clients) == CLIENTS and all(received(each) == size for each in clients))
            most = size if size <= api.HEAD_BYTES_MAX else 2 * size + api.RECEIVE_AHEAD_BYTES
            assert all(size <= held(each) <= most for each in clients)
            assert listening.buffers.bytes == sum(len(each._own or b"") for each in clients)
            for writer in writers:
                writer.close()
            await stub.until(lambda: not listening.connections)
            assert listening.buffers.bytes == 0

    stub.run(test())


def test_a_frame_that_comes_byte_by_byte_holds_little(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, stub.echo)
    body = bytes(range(256)) * 2

    async def test() -> None:
        async with stub.listening() as (listening, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            frame = stub.frame(body, 9)
            for number in range(len(frame)):
                writer.write(frame[number : number + 1])
                if number + 1 < len(frame):
                    await stub.until(lambda: [received(each) for each in listening.connections] == [number + 1])  # noqa: B023
                    assert [held(each) for each in listening.connections] == [number + 1]
            assert await stub.read_frame(reader) == (9, body)
            assert [held(each) for each in listening.connections] == [0]
            writer.close()

    stub.run(test())


@pytest.mark.parametrize("clients", [2, 12])
def test_a_rush_that_is_over_gives_memory_back_to_the_system(monkeypatch: Any, clients: int) -> None:
    """Twelve hold more than GIVE_BACK_BYTES_MIN together, two do not."""
    given: list[int] = []
    monkeypatch.setattr(listener, "GIVE_BACK_SECONDS", 0.0)
    monkeypatch.setattr(memory, "give_back", lambda: given.append(1))
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening(request_bytes_max=200_000_000) as (listening, port):
            for _ in range(2):
                writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(clients)]
                for writer in writers:
                    writer.write(struct.pack(">i", 100_000_000) + bytes(1_600_000))
                await stub.until(lambda: sum(map(received, listening.connections)) == clients * 1_600_004)
                assert not given
                for writer in writers:
                    writer.close()
                await stub.until(lambda: not listening.connections)
                if clients > 2:
                    await stub.until(lambda: given)
                    given.clear()
            assert not given

    stub.run(test())


def test_free_memory_can_be_given_back() -> None:
    memory.give_back()
