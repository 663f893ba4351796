"""Long responses that somebody takes while they arrive."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from ottla.drivers.nodes.node_connection import RECEIVE_BUFFER_BYTES, NodeConnection
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from tests.unit.drivers.nodes.test_node_client import HEARTBEAT, failure, heartbeat_answer, peer_and_client, run
from tests.unit.server.stub import until

SIZE = 3 * RECEIVE_BUFFER_BYTES


class Gathered:
    """A sink of a few bytes at a time, which is busy after each."""

    def __init__(self, limit: int = 5000, fails_at: int = 1 << 30) -> None:
        self.data = bytearray()
        self.size = 0
        self.is_over = self.is_busy = False
        self.begun = 0
        self.turns = 0
        self._buffer = memoryview(bytearray(limit))
        self._fails_at = fails_at

    def begin(self, size: int) -> None:
        self.begun += 1
        self.size = size
        self.data.clear()
        self.is_over = False

    def room(self) -> memoryview:
        return self._buffer[: self.size - len(self.data)]

    def take(self, count: int) -> None:
        self.turns += not count
        self.data += self._buffer[:count]
        if len(self.data) >= self._fails_at:
            raise KeyError("enough")
        self.is_busy = count > 0
        self.is_over = not self.is_busy and len(self.data) == self.size


def long_answer(correlation_id: int, size: int = SIZE) -> bytes:
    return struct.pack(">i", correlation_id) + bytes(number % 251 for number in range(size - 4))


def ask(connection: NodeConnection, sink: Any = None) -> asyncio.Future[memoryview]:
    return connection.send(connection.encode(ApiKey.HEARTBEAT, 3, HEARTBEAT), 60, sink)


@pytest.mark.parametrize("piece", [1 << 30, 4093])
def test_a_sink_gets_a_long_response_and_others_get_theirs(piece: int) -> None:
    async def test() -> None:
        async with peer_and_client() as (peer, client, address):
            connection = await client.connection(address)
            peer.piece = piece
            peer.answer = lambda version, number: (
                long_answer(number) if number % 2 == 0 else heartbeat_answer(version, number)
            )
            sinks = [Gathered() for _ in range(5)]
            waiting = [ask(connection, sink) for sink in sinks]
            answers = [await each for each in waiting]
            for (_, _, number), sink, answer in zip(peer.seen[-5:], sinks, answers, strict=True):
                if number % 2 == 0:
                    assert (bytes(sink.data), len(answer)) == (long_answer(number), 0)
                    assert sink.turns >= 5  # what came before it had memory of its own is taken at once
                else:
                    assert (sink.begun, bytes(answer)) == (0, heartbeat_answer(3, number))
            assert connection.in_flight == 0

    run(test())


def test_a_sink_that_raises_ends_the_connection_and_its_error_comes_out() -> None:
    async def test() -> None:
        async with peer_and_client() as (peer, client, address):
            connection = await client.connection(address)
            peer.answer = lambda version, number: long_answer(number)
            first, second = ask(connection, Gathered(fails_at=20_000)), ask(connection, Gathered())
            with pytest.raises(KeyError):
                await first
            assert (await failure(second)).code is ErrorCode.network_exception
            assert connection.failure is not None

    run(test())


def test_a_sink_gets_nothing_of_a_response_that_is_not_due() -> None:
    async def test() -> None:
        async with peer_and_client() as (peer, client, address):
            connection = await client.connection(address)
            peer.answer = lambda version, number: long_answer(number + 1)
            sink = Gathered()
            assert (await failure(ask(connection, sink))).code is ErrorCode.network_exception
            assert sink.begun == 0

    run(test())


def test_a_sink_of_which_nobody_wants_to_know_any_more_gets_no_more() -> None:
    async def test() -> None:
        async with peer_and_client() as (peer, client, address):
            connection = await client.connection(address)
            peer.answer = lambda version, number: None
            sink = Gathered()
            waiting = ask(connection, sink)
            await until(lambda: len(peer.seen) == 2)
            frame = long_answer(peer.seen[-1][2])
            peer.writers[0].write(struct.pack(">i", len(frame)) + frame[:20_000])
            await until(lambda: len(sink.data) == 20_000)
            waiting.cancel()
            peer.writers[0].write(frame[20_000:])
            await until(lambda: connection.failure is not None)
            assert len(sink.data) == 20_000

    run(test())


def test_a_connection_that_is_lost_in_the_middle_fails_the_request() -> None:
    async def test() -> None:
        async with peer_and_client() as (peer, client, address):
            connection = await client.connection(address)
            peer.answer = lambda version, number: None
            sink = Gathered()
            waiting = ask(connection, sink)
            await until(lambda: len(peer.seen) == 2)
            frame = long_answer(peer.seen[-1][2])
            peer.writers[0].write(struct.pack(">i", len(frame)) + frame[:20_000])
            await peer.writers[0].drain()
            peer.writers[0].close()
            assert (await failure(waiting)).code is ErrorCode.network_exception
            assert len(sink.data) == 20_000
            with pytest.raises(KafkaError):
                await ask(connection, sink)

    run(test())
