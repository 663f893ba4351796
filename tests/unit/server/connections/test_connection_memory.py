"""What connections hold of frames that have not wholly arrived: what was sent, not what was claimed."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ottla import memory
from ottla.server.api import Deferred
from ottla.server.connections import connection, receiving
from tests.unit.server import stub

CLIENTS = 20
SIZES = (1, 4, 5, 1000, receiving.HEAD_BYTES_MAX, receiving.HEAD_BYTES_MAX + 1, 100_000, 1_500_000)


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
            most = size if size <= receiving.HEAD_BYTES_MAX else 2 * size + receiving.RECEIVE_AHEAD_BYTES
            assert all(size <= held(each) <= most for each in clients)
            assert listening.buffers.bytes == sum(len(each._own or b"") + each._growth for each in clients)
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
    monkeypatch.setattr(receiving, "GIVE_BACK_SECONDS", 0.0)
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


LARGE = 3_000_000
LIMIT = 2_000_000


def test_frames_of_many_clients_are_received_within_the_limit_and_one_frame(monkeypatch: Any) -> None:
    """All send at once, ten times what there is room for; each is answered, and small requests meanwhile."""
    stub.serve(monkeypatch, stub.echo)
    body = bytes(range(250)) * (LARGE // 250)

    async def test() -> None:
        async with stub.listening(queued_bytes_max=LIMIT) as (listening, port):
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
            buffers = listening.buffers
            most, waited, small = 0, 0, 0
            taken = type(buffers).taken

            def watched(self: Any, size: int) -> None:
                nonlocal most
                taken(self, size)
                most = max(most, self.bytes)

            monkeypatch.setattr(type(buffers), "taken", watched)
            asking = [asyncio.create_task(ask(each, body)) for each in clients]
            bystander = await asyncio.open_connection("127.0.0.1", port)
            while not all(each.done() for each in asking):
                waited = max(waited, buffers.waiting)
                small += buffers.is_scarce
                assert await ask(bystander, b"small") == (7, b"small")
            assert [await each for each in asking] == [(7, body)] * 8
            assert waited > 1 and small > 1
            assert LIMIT <= most <= LIMIT + LARGE + receiving.GROWTH_BYTES_MAX + 8 * 2 * receiving.NARROW_BYTES
            await stub.until(lambda: not buffers.bytes and not buffers.is_scarce and buffers.first is None)
            assert len(listening.receive_view) == len(listening.receive_buffer)
            for _, writer in [*clients, bystander]:
                writer.close()

    stub.run(test())


async def ask(client: Any, body: bytes) -> tuple[int, bytes]:
    reader, writer = client
    writer.write(stub.frame(body, 7))
    return await stub.read_frame(reader)


def test_who_keeps_others_waiting_for_memory_and_sends_nothing_is_disconnected(monkeypatch: Any) -> None:
    monkeypatch.setattr(receiving, "STALL_SECONDS", 0.02)
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening(queued_bytes_max=LIMIT) as (listening, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in silent:
                writer.write(stub.frame(bytes(LARGE), 1)[: LARGE // 2])
            await stub.until(lambda: listening.buffers.first is not None)
            honest = await asyncio.open_connection("127.0.0.1", port)
            body = b"x" * LARGE
            assert await ask(honest, body) == (7, body)
            for _, writer in [*silent, honest]:
                writer.close()
            await stub.until(lambda: not listening.connections and not listening.buffers.bytes)

    stub.run(test())


def test_a_frame_counts_until_its_request_is_answered(monkeypatch: Any) -> None:
    waiting: list[Deferred] = []

    def handle(context: Any, request: bytes) -> Any:
        assert context.session.give_received()
        waiting.append(Deferred())
        return waiting[-1]

    stub.serve(monkeypatch, handle)
    body = bytes(LARGE)

    async def test() -> None:
        async with stub.listening() as (listening, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(body, 7))
            await stub.until(lambda: waiting)
            (client,) = listening.connections
            await stub.until(lambda: client._lent)
            assert client._own is None and listening.buffers.bytes >= LARGE
            waiting[0].complete(stub.answer(7, b""))
            assert await stub.read_frame(reader) == (7, b"")
            assert not listening.buffers.bytes
            writer.write(stub.frame(body, 8))
            await stub.until(lambda: len(waiting) == 2 and client._lent)
            client.abort()
            await stub.until(lambda: not listening.connections)
            assert not listening.buffers.bytes
            writer.close()

    stub.run(test())


def test_a_large_frame_is_copied_once_not_once_for_each_piece_of_it(monkeypatch: Any) -> None:
    """Counts the bytes that are moved between buffers of a connection's own."""
    stub.serve(monkeypatch, stub.echo)
    moved = 0
    real = receiving.enlarge

    def enlarge(client: Any) -> memoryview:
        nonlocal moved
        own = client._own
        view = real(client)
        moved += client._end if client._own is not own else 0
        return view

    monkeypatch.setattr(receiving, "enlarge", enlarge)

    async def test() -> None:
        async with stub.listening() as (_, port):
            client = await asyncio.open_connection("127.0.0.1", port)
            body = bytes(9_000_000)
            assert await ask(client, body) == (7, body)
            client[1].close()

    stub.run(test())
    assert moved == 0


def test_many_buffers_grow_by_little_in_one_round() -> None:
    """Each by all that was granted in the end."""
    clients, size = 25, receiving.GROWTH_BYTES_MAX

    async def test() -> None:
        buffers = receiving.Receiving().of("clients")
        growing = []
        for _ in range(clients):
            own = bytearray(100)
            listening = SimpleNamespace(buffers=buffers)
            growing.append(
                SimpleNamespace(_own=own, _own_view=memoryview(own), _growth=size, _end=100, _listener=listening)
            )
        rounds = 0
        while any(each._growth for each in growing):
            before = sum(len(each._own) for each in growing)
            for each in growing:
                if each._growth:
                    before_this = len(each._own)
                    receiving.enlarge(each)  # type: ignore[arg-type]
                    assert len(each._own) > before_this and each._growth == size + 100 - len(each._own)
            grown = sum(len(each._own) for each in growing) - before
            assert grown <= receiving.GROWTH_PER_ROUND_MAX + clients * receiving.NARROW_BYTES
            rounds += 1
            await asyncio.sleep(0)
        assert 3 < rounds < 10
        assert all(len(each._own_view) == len(each._own) == size + 100 for each in growing)

    stub.run(test())


MAPPED = """
import ctypes
from ottla import memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd rest uord ford keep".split()]
    _fields_ += [("more", ctypes.c_size_t)]

look = getattr(ctypes.CDLL(None), "mallinfo2", None)
if look is not None:
    look.restype = Info
    del (large := [bytearray(30 << 20)])[:]  # from now on glibc maps apart only what is larger
    memory.keep_freed()
    before = look().hblks
    kept = [bytearray(memory.LARGE_BYTES) for _ in range(3)]
    assert look().hblks - before == 3
"""


def test_large_buffers_are_mapped_apart_whatever_was_freed_before() -> None:
    subprocess.run([sys.executable, "-c", MAPPED], check=True)


def test_free_memory_can_be_given_back() -> None:
    memory.give_back()


def test_small_requests_that_wait_need_no_buffer(monkeypatch: Any) -> None:
    """In a rebalance of a thousand members nearly every request waits for a moment."""
    waiting = stub.serve_later(monkeypatch)

    async def test() -> None:
        async with stub.listening() as (listening, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"first", 0))
            await stub.until(lambda: waiting)
            (client,) = listening.connections
            size, sent = 0, b"".join(stub.frame(b"%100d" % number, number) for number in range(1, 21))
            for at in range(0, len(sent), 70):  # cut anywhere
                writer.write(sent[at : at + 70])
                size = min(at + 70, len(sent))
                await stub.until(lambda: len(client._head) == size)  # noqa: B023
            assert client._own is None and not listening.buffers.bytes
            large = stub.frame(b"%5000d" % 21, 21)
            writer.write(large)
            await stub.until(lambda: client._end == size + len(large))
            assert client._own is not None and not client._head and listening.buffers.bytes == len(client._own)
            for number in range(22):
                await stub.until(lambda: len(waiting) > number)  # noqa: B023
                waiting[number].complete(stub.answer(number, b"%d" % number))
                assert await stub.read_frame(reader) == (number, b"%d" % number)
            await stub.until(lambda: not listening.buffers.bytes)
            writer.close()

    stub.run(test())
