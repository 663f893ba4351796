"""Connections under generated mistreatment: every way of cutting, waiting, not reading and going away."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from typing import Any

import pytest

from ottla.server import dispatch
from ottla.server.api import CloseConnection, Deferred
from ottla.server.connections import receiving
from tests.unit.server import stub

SIZES = (0, 1, 10, 300, 4083, 4084, 4085, 4096, 8200, 16_369, 16_370, 16_371, 33_000, 65_522, 65_523, 65_536, 131_100,
         300_000, 1 << 20, 1_100_000, 2_200_000)  # fmt: skip
AT_ONCE, LATER, AS_TASK, WAITING = range(4)


class Chaos:
    """A handler that answers each request as its first byte says: at once, later, much later, by a task."""

    def __init__(self, rng: random.Random, *, pipelined: bool) -> None:
        self.rng = rng
        self.pipelined = pipelined
        self.running: dict[Any, int] = {}
        self.most = 0

    def __call__(self, context: Any, request: bytes) -> Any:
        how = request[0] if request else AT_ONCE
        answer = stub.answer(context.correlation_id, request)
        if how == AT_ONCE:
            return answer
        self.running[context.session] = running = self.running.get(context.session, 0) + 1
        self.most = max(self.most, running)
        if how == AS_TASK:
            return self._task(context, answer)
        deferred = Deferred(lambda: self._done(context))

        def complete() -> None:
            if not deferred.cancelled:
                self._done(context)
            deferred.complete(answer)

        loop = asyncio.get_running_loop()
        if how == WAITING:
            loop.call_later(self.rng.random() * 0.003, complete)
        else:
            loop.call_soon(complete)
        return deferred

    def _done(self, context: Any) -> None:
        self.running[context.session] -= 1

    async def _task(self, context: Any, answer: Any) -> Any:
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)
        self._done(context)
        return answer


async def send_and_check(port: int, rng: random.Random, count: int) -> None:
    """One client: requests of nasty sizes, cut anywhere, answers read late; each answer is right and in its turn."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rng.choice([4096, 65_536, 1 << 20]))
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=rng.choice([2000, 1 << 20]))
    sizes = rng.choices(SIZES, weights=[16] * 8 + [2] * 10 + [1] * 3, k=count)
    bodies = [(bytes([rng.randrange(4)]) + rng.randbytes(min(size, 64)) + bytes(size))[:size] for size in sizes]

    async def send() -> None:
        stream = b"".join(stub.frame(body, number) for number, body in enumerate(bodies))
        position = 0
        while position < len(stream):
            step = rng.choice([1, 7, 100, 4096, 70_000, 1 << 20, 1 << 22])
            writer.write(stream[position : position + step])
            position += step
            await writer.drain()
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() * 0.002)

    async def receive() -> None:
        for number, body in enumerate(bodies):
            if rng.random() < 0.05:
                await asyncio.sleep(rng.random() * 0.005)
            assert await stub.read_frame(reader) == (number, body)

    await asyncio.gather(send(), receive())
    writer.close()


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_answers_are_right_and_in_order_whatever_happens(monkeypatch: Any, seed: int, pipelined: bool) -> None:
    rng = random.Random(seed)
    chaos = Chaos(rng, pipelined=pipelined)
    stub.serve(monkeypatch, chaos, pipelined=pipelined)

    async def test() -> None:
        async with stub.listening() as (listener, port):
            await asyncio.gather(*(send_and_check(port, random.Random(seed * 10 + n), 60) for n in range(4)))
            await stub.until(lambda: not listener.connections)
            assert not any(chaos.running.values())
            assert chaos.most <= (receiving.PENDING_MAX if pipelined else 1)

    stub.run(test())


@pytest.mark.parametrize("seed", range(2))
def test_clients_that_go_away_leave_nothing_behind(monkeypatch: Any, seed: int) -> None:
    rng = random.Random(seed)
    chaos = Chaos(rng, pipelined=False)
    stub.serve(monkeypatch, chaos)

    async def churn(port: int) -> None:
        for _ in range(60):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            for number in range(rng.randrange(6)):
                data = stub.frame(bytes([rng.randrange(4)]) + bytes(rng.choice(SIZES[:16])), number)
                writer.write(data[: rng.choice([len(data), rng.randrange(len(data))])])
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            how = rng.randrange(3)
            if how == 0:
                writer.transport.abort()
            elif how == 1 and writer.can_write_eof():
                writer.write_eof()
                await asyncio.sleep(0)
                writer.close()
            else:
                writer.close()

    async def test() -> None:
        async with stub.listening() as (listener, port):
            before = open_descriptors()
            await asyncio.gather(*(churn(port) for _ in range(4)))
            await stub.until(lambda: not listener.connections)
            await stub.until(lambda: not any(chaos.running.values()))
            assert not listener._counted and not listener._limits._by_host
            assert open_descriptors() <= before

    stub.run(test())


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_request_that_comes_while_another_waits_is_not_begun(monkeypatch: Any) -> None:
    """Also when nothing of it came together with the first."""
    waiting = stub.serve_later(monkeypatch)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for number in range(3):
                writer.write(stub.frame(b"q", number))
                await asyncio.sleep(0.01)
            assert len(waiting) == 1
            for number in range(3):
                await stub.until(lambda: len(waiting) > number)  # noqa: B023
                waiting[number].complete(stub.answer(number, b"a"))
                assert await stub.read_frame(reader) == (number, b"a")
            writer.close()

    stub.run(test())


def test_one_request_at_a_time_does_not_get_round_the_limit_of_unread_answers(monkeypatch: Any) -> None:
    handled = 0

    def handle(context: Any, request: bytes) -> Any:
        nonlocal handled
        handled += 1
        return stub.answer(context.correlation_id, bytes(100_000))

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            for number in range(300):
                writer.write(stub.frame(b"", number))
                await asyncio.sleep(0.0005)
            (client,) = listener.connections
            assert client.outbox.queued <= receiving.OUTBOX_BYTES_MAX + 100_100
            for number in range(300):
                assert (await stub.read_frame(reader))[0] == number
            assert handled == 300
            writer.close()

    stub.run(test())


@pytest.mark.parametrize("size", [100, 100_000, 8_000_000])
def test_a_full_socket_neither_cuts_nor_repeats_an_answer(monkeypatch: Any, size: int) -> None:
    """An answer in one piece, as most are, to a client that reads late."""
    body = random.Random(size).randbytes(size)

    def handle(context: Any, request: bytes) -> Any:
        return {"throttle_time_ms": 0, "error_code": 0}

    stub.serve(monkeypatch, handle)

    def encode(call: Any, response: Any) -> tuple[list[Any], int]:
        data = struct.pack(">ii", len(body) + 4, call.context.correlation_id) + body
        return [data], len(data)

    monkeypatch.setattr(dispatch, "encode", encode)
    count = max(3, min(3000, 20_000_000 // size))

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            for number in range(count):
                writer.write(stub.frame(b"", number))
                if size > 1000 or number % 50 == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            for number in range(count):
                assert await stub.read_frame(reader) == (number, body)
            writer.close()

    stub.run(test())


def test_a_refusal_behind_which_answers_wait_still_ends_the_connection(monkeypatch: Any) -> None:
    waiting = stub.serve_later(monkeypatch, pipelined=True)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for number in range(3):
                writer.write(stub.frame(b"q", number))
            await stub.until(lambda: len(waiting) == 3)
            waiting[2].complete(stub.answer(2, b"c"))
            waiting[0].complete(stub.answer(0, b"a"))
            waiting[1].complete(CloseConnection())
            assert await stub.read_frame(reader) == (0, b"a")
            await reader.read()
            writer.close()

    stub.run(test())


def test_a_connection_that_comes_while_the_listener_stops_does_not_hold_it_up(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening() as (listener, port):
            connects = [asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port)) for _ in range(20)]
            for _ in range(3):
                await asyncio.sleep(0)
            await listener.stop(drain_seconds_max=1000)
            for each in await asyncio.gather(*connects, return_exceptions=True):
                if not isinstance(each, BaseException):
                    each[1].close()

    stub.run(test())
