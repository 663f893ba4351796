"""Frames, order, limits: what a connection does with bytes, whatever the handlers are."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.api import CloseConnection, Deferred
from ottla.server.connections import receiving
from ottla.server.listeners.listener import end_if_idle
from tests.unit.server import stub


def test_one_request_and_its_answer(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"hello", 42))
            assert await stub.read_frame(reader) == (42, b"hello")
            writer.close()

    stub.run(test())


@pytest.mark.parametrize("step", [1, 3, 7, 50, 1000])
def test_frames_cut_anywhere(monkeypatch: Any, step: int) -> None:
    stub.serve(monkeypatch, stub.echo)
    bodies = [bytes([n]) * (n * 37 % 211) for n in range(12)]
    stream = b"".join(stub.frame(body, n) for n, body in enumerate(bodies))

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for start in range(0, len(stream), step):
                writer.write(stream[start : start + step])
                await writer.drain()
                if step < 1000:
                    await asyncio.sleep(0)
            for n, body in enumerate(bodies):
                assert await stub.read_frame(reader) == (n, body)
            writer.close()

    stub.run(test())


@pytest.mark.parametrize("size", [100_000, 262_140, 262_145, 1 << 20, 5_000_000])
def test_large_frames_between_small_ones(monkeypatch: Any, size: int) -> None:
    stub.serve(monkeypatch, stub.echo)
    bodies = [b"a", os.urandom(size), b"b", os.urandom(size), b"c"]

    async def test() -> None:
        async with stub.listening() as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
            for n, body in enumerate(bodies):
                writer.write(stub.frame(body, n))
            for n, body in enumerate(bodies):
                assert await stub.read_frame(reader) == (n, body)
            for each in listener.connections:
                each.trim()
                assert each._own is None
            writer.close()

    stub.run(test())


def test_two_clients_share_the_receive_buffer(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening() as (_, port):
            ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            whole = [stub.frame(bytes([65 + n]) * 3000, n) for n in range(5)]
            for cut in range(0, 3100, 100):
                for (_, writer), data in zip(ends, whole, strict=True):
                    writer.write(data[cut : cut + 100])
                await asyncio.sleep(0)
            for n, (reader, writer) in enumerate(ends):
                assert await stub.read_frame(reader) == (n, bytes([65 + n]) * 3000)
                writer.close()

    stub.run(test())


def test_the_next_request_waits_for_a_deferred_answer(monkeypatch: Any) -> None:
    begun: list[bytes] = []
    waiting: list[Deferred] = []

    def handle(context: Any, request: bytes) -> Any:
        begun.append(request)
        if request == b"slow":
            waiting.append(Deferred())
            return waiting[-1]
        return stub.answer(context.correlation_id, request)

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"slow", 1) + stub.frame(b"next", 2))
            await stub.until(lambda: waiting)
            writer.write(stub.frame(b"last", 3))
            await asyncio.sleep(0.01)
            assert begun == [b"slow"]
            waiting[0].complete(stub.answer(1, b"done"))
            assert [await stub.read_frame(reader) for _ in range(3)] == [(1, b"done"), (2, b"next"), (3, b"last")]
            writer.close()

    stub.run(test())


def test_pipelined_requests_begin_at_once_and_answer_in_order(monkeypatch: Any) -> None:
    waiting: list[Deferred] = []

    def handle(context: Any, request: bytes) -> Any:
        if request == b"now":
            return stub.answer(context.correlation_id, request)
        waiting.append(Deferred())
        return waiting[-1]

    stub.serve(monkeypatch, handle, pipelined=True)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"1", 1) + stub.frame(b"2", 2) + stub.frame(b"now", 3))
            await stub.until(lambda: len(waiting) >= 2)
            waiting[1].complete(stub.answer(2, b"second"))
            waiting[0].complete(stub.answer(1, b"first"))
            answers = [await stub.read_frame(reader) for _ in range(3)]
            assert answers == [(1, b"first"), (2, b"second"), (3, b"now")]
            writer.close()

    stub.run(test())


def test_another_api_behind_a_pipelined_one_is_not_begun_before_its_turn(monkeypatch: Any) -> None:
    """Its answer could only be sent then, and would be old."""
    waiting = stub.serve_later(monkeypatch, pipelined=True)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"1", 1) + stub.frame(b"2", 2) + stub.api_versions(3, 3) + stub.frame(b"4", 4))
            await stub.until(lambda: len(waiting) == 2)
            waiting[1].complete(stub.answer(2, b"second"))
            await asyncio.sleep(0)
            assert len(waiting) == 2
            waiting[0].complete(stub.answer(1, b"first"))
            answers = [await stub.read_frame(reader) for _ in range(3)]
            assert answers[:2] == [(1, b"first"), (2, b"second")] and answers[2][0] == 3
            await stub.until(lambda: len(waiting) == 3)
            waiting[2].complete(stub.answer(4, b"fourth"))
            assert await stub.read_frame(reader) == (4, b"fourth")
            writer.close()

    stub.run(test())


def test_a_coroutine_answers_too(monkeypatch: Any) -> None:
    async def handle(context: Any, request: bytes) -> Any:
        await asyncio.sleep(0)
        if request == b"bad":
            raise KafkaError(ErrorCode.unknown_member_id)
        return {"error_code": ErrorCode.none}

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"x", 1) + stub.frame(b"bad", 2) + stub.frame(b"y", 3))
            assert [await stub.read_frame(reader) for _ in range(3)] == [(1, b"\0\0"), (2, b"\0\x19"), (3, b"\0\0")]
            writer.close()

    stub.run(test())


def test_a_handler_that_breaks_is_unknown_server_error(monkeypatch: Any, caplog: Any) -> None:
    def handle(context: Any, request: bytes) -> Any:
        return {"error_code": "not a code"} if request == b"encode" else 1 / 0

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"", 1) + stub.frame(b"encode", 2))
            assert await stub.read_frame(reader) == (1, b"\xff\xff")
            assert await stub.read_frame(reader) == (2, b"\xff\xff")
            writer.close()

    stub.run(test())
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 50),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_bad_bytes_close_that_connection_only(monkeypatch: Any, bad: bytes) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"before", 1) + bad)
            assert await stub.read_frame(reader) == (1, b"before")
            assert await reader.read() == b""
            other_writer.write(stub.frame(b"alive", 2))
            assert await stub.read_frame(other_reader) == (2, b"alive")
            writer.close()
            other_writer.close()

    stub.run(test())


def test_close_without_an_answer(monkeypatch: Any) -> None:
    def handle(context: Any, request: bytes) -> Any:
        raise CloseConnection

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b""))
            assert await reader.read() == b""
            writer.close()

    stub.run(test())


def test_a_reader_that_does_not_read_is_held_back(monkeypatch: Any) -> None:
    handled = 0

    def handle(context: Any, request: bytes) -> Any:
        nonlocal handled
        handled += 1
        return stub.answer(context.correlation_id, bytes(50_000))

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            count = 3000
            writer.write(b"".join(stub.frame(bytes(1000), n) for n in range(count)))
            seen = -1
            while handled != seen:
                seen = handled
                await asyncio.sleep(0.05)
            assert handled < count / 4
            (client,) = listener.connections
            assert client.outbox.queued <= receiving.OUTBOX_BYTES_MAX + 50_100
            assert len(client._own or b"") < 600_000
            for n in range(count):
                correlation_id, body = await stub.read_frame(reader)
                assert (correlation_id, len(body)) == (n, 50_000)
            writer.close()

    stub.run(test())


def test_a_half_closed_client_still_gets_its_answer(monkeypatch: Any) -> None:
    waiting = stub.serve_later(monkeypatch)

    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"q", 5))
            writer.write_eof()
            await stub.until(lambda: waiting)
            await asyncio.sleep(0.01)
            waiting[0].complete(stub.answer(5, b"late"))
            assert await stub.read_frame(reader) == (5, b"late")
            assert await reader.read() == b""
            writer.close()

    stub.run(test())


def test_a_lost_client_cancels_its_long_poll(monkeypatch: Any) -> None:
    cancelled: list[int] = []
    begun: list[int] = []

    def handle(context: Any, request: bytes) -> Any:
        begun.append(1)
        return Deferred(lambda: cancelled.append(1))

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (_, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"q", 5))
            await stub.until(lambda: begun)
            linger = struct.pack("ii", 1, 0)  # makes the close a reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            await stub.until(lambda: cancelled)

    stub.run(test())


def test_the_loss_of_a_connection_is_said_also_where_it_came_first(monkeypatch: Any) -> None:
    """A handler may ask to be called when its client is gone already; it would hold what it keeps for it for ever."""
    lost: list[str] = []
    sessions: list[Any] = []

    def handle(context: Any, request: bytes) -> Any:
        sessions.append(context.session)
        context.session.when_lost(lambda: lost.append("first"))
        return Deferred(lambda: None)

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (listener, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"q", 5))
            await stub.until(lambda: sessions)
            writer.transport.abort()
            await stub.until(lambda: lost)
            sessions[0].when_lost(lambda: lost.append("late"))
            await stub.until(lambda: len(lost) == 2)
            assert (lost, listener.when_lost) == (["first", "late"], {})

    stub.run(test())


def test_connection_limits(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening(per_host_max=2) as (listener, port):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for _, writer in kept:
                writer.write(stub.frame(b"x"))
            for reader, _ in kept:
                await stub.read_frame(reader)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            kept[0][1].close()
            await stub.until(lambda: len(listener.connections) <= 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"y", 3))
            assert await stub.read_frame(reader) == (3, b"y")

    stub.run(test())


def test_idle_connections_are_closed(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, stub.echo)

    async def test() -> None:
        async with stub.listening(idle_ms_max=80) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

    stub.run(test())


def sweep(listener: Any, ticks_max: int) -> None:
    listener.tick += 1
    for each in list(listener.connections):
        end_if_idle(each, listener.tick, ticks_max)


def test_a_client_gone_behind_requests_that_wait_is_noticed(monkeypatch: Any) -> None:
    """Nothing is read from it, so not its end either, and the long poll may be asked to last for days."""
    stub.serve(monkeypatch, lambda context, request: Deferred())

    async def test() -> None:
        async with stub.listening(idle_ms_max=0) as (listener, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.frame(b"wait"))
            await stub.until(lambda: any(each._pending for each in listener.connections))
            (client,) = listener.connections
            while not client._paused:
                writer.write(bytes(1000))
                await asyncio.sleep(0.001)
            writer.close()
            for _ in range(3):
                sweep(listener, 3)
            await asyncio.sleep(0.01)
            assert listener.connections
            sweep(listener, 3)
            await stub.until(lambda: not listener.connections)

    stub.run(test())


def test_a_client_that_never_reads_its_answers_is_closed_one_that_reads_slowly_is_not(monkeypatch: Any) -> None:
    stub.serve(monkeypatch, lambda context, request: stub.answer(context.correlation_id, bytes(8_000_000)))

    async def test() -> None:
        async with stub.listening(idle_ms_max=0) as (listener, port):
            slow_reader, slow = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            slow.write(stub.frame(b"") * 3)
            await stub.until(lambda: any(each.outbox.queued for each in listener.connections))
            (reading,) = listener.connections
            _, deaf = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            deaf.write(stub.frame(b"") * 3)
            await stub.until(lambda: len([each for each in listener.connections if each.outbox.queued]) == 2)
            sweep(listener, 3)
            for _ in range(4):
                before = reading.outbox.queued
                while reading.outbox.queued == before:
                    await slow_reader.read(100_000)
                sweep(listener, 3)
            await stub.until(lambda: list(listener.connections) == [reading])
            sweep(listener, 3)
            assert not reading.closing
            deaf.close()
            slow.close()

    stub.run(test())


def test_of_what_is_forwarded_a_broker_serves_what_its_controller_does() -> None:
    """A client would be refused otherwise, by a controller that it does not see."""
    others = {ApiKey.CREATE_TOPICS: (0, 5), ApiKey.DELETE_TOPICS: (7, 9), ApiKey.FETCH: (4, 4)}

    async def test() -> None:
        async with stub.listening(controller_versions=others) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.api_versions(3))
            _, body = await stub.read_frame(reader)
            _, answer = messages.decode_response(ApiKey.API_VERSIONS, 3, struct.pack(">i", 7) + body)
            found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            assert found[ApiKey.CREATE_TOPICS] == (2, 5)
            assert ApiKey.DELETE_TOPICS not in found and ApiKey.CREATE_PARTITIONS not in found
            assert found[ApiKey.FETCH][1] > 4, "that is not forwarded"
            writer.close()

    stub.run(test())


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async def test() -> None:
        async with stub.listening() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stub.api_versions(99))
            assert await stub.read_frame(reader) == (7, bytes.fromhex("0023 00000001 0012 0000 0005"))
            for version in range(6):
                writer.write(stub.api_versions(version))
                correlation_id, body = await stub.read_frame(reader)
                _, answer = messages.decode_response(ApiKey.API_VERSIONS, version, struct.pack(">i", 7) + body)
                assert correlation_id == 7
                assert answer.error_code == ErrorCode.none
                assert (0, 0, 13) in {(k.api_key, k.min_version, k.max_version) for k in answer.api_keys}
            writer.close()

    stub.run(test())


@pytest.mark.parametrize(("size", "turn"), [(4_000, 1), (10, 6)])
def test_who_sends_several_requests_has_one_large_answer_in_turn(monkeypatch: Any, size: int, turn: int) -> None:
    """As Kafka's network threads take them. Small ones are answered together, with one system call."""
    order: list[int] = []

    def handle(context: Any, request: bytes) -> Any:
        order.append(context.correlation_id // 10)
        return stub.echo(context, request)

    stub.serve(monkeypatch, handle)

    async def test() -> None:
        async with stub.listening() as (_, port):
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for number, (_, writer) in enumerate(clients):
                writer.write(b"".join(stub.frame(bytes(size), 10 * number + index) for index in range(6)))
            for number, (reader, writer) in enumerate(clients):
                assert [(await stub.read_frame(reader))[0] % 10 for _ in range(6)] == [*range(6)], number
                writer.close()

    stub.run(test())
    runs = [len([*each]) for _, each in itertools.groupby(order)]
    assert runs[:9] == [turn] * min(9, 18 // turn), order
