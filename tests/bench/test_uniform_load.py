"""The fast load generator against a peer that answers as told: what it counts, and that it looks at the answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.method.counters import Meter
from bench.method.uniform_load import _Connection, uniform_load

REQUEST = bytes(range(100)) * 40
ANSWER = (8).to_bytes(4, "big") + b"\0\0\0\1" + b"okay"


def _received(connection: socket.socket) -> bytes:
    """Nothing at the end, however the other side ended."""
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


@contextmanager
def peer(answer: Callable[[int], bytes]) -> Iterator[int]:
    """Answers the n-th request of a connection with `answer(n)`; requests must come whole and in order."""
    listener = socket.create_server(("127.0.0.1", 0))
    broken: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        got, count = b"", 0
        with connection:
            while data := _received(connection):
                got += data
                while len(got) >= len(REQUEST):
                    if got[: len(REQUEST)] != REQUEST:
                        broken.append(got)
                        return
                    got = got[len(REQUEST) :]
                    try:
                        connection.sendall(answer(count))
                    except OSError:
                        return
                    count += 1

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(30)
    assert not broken


def load(port: int, fixed: Callable[[bytes], list[int]] | None = None) -> int:
    meter = Meter(os.getpid())
    return uniform_load(
        port, [[REQUEST]], None, 0, in_flight=7, seconds=0.1, settle_s=0.05, meter=meter, fixed=fixed
    ).requests


def test_all_answers_are_counted() -> None:
    seen = []

    def answer(count: int) -> bytes:
        seen.append(count)
        return ANSWER

    with peer(answer) as port:
        requests = load(port)
    assert 0 < requests <= len(seen)


def test_an_answer_that_differs_ends_the_load() -> None:
    with (
        peer(lambda count: ANSWER if count < 20 else ANSWER[:-1] + b"!") as port,
        pytest.raises(RuntimeError, match="differs"),
    ):
        load(port)


def test_only_the_bytes_that_must_repeat_are_compared() -> None:
    def answer(count: int) -> bytes:
        return ANSWER[:-1] + bytes([count % 256])

    with peer(answer) as port:
        assert load(port, lambda first: [2, 3, 7, 8]) > 0
    other = b"\0\0\0\x08\0\0\0\1no!!"
    differs = pytest.raises(RuntimeError, match="byte 8")
    with peer(lambda count: answer(count) if count < 20 else other) as port, differs:
        load(port, lambda first: [2, 3, 7, 8])


def test_an_answer_is_timed_from_its_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the latest that was sent: a broker that answers one by one would look several times as quick."""
    clock = iter([0.0, 1.0, 2.0, 10.0, 20.0, 30.0])
    monkeypatch.setattr("bench.method.uniform_load.time.perf_counter", lambda: next(clock))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = _Connection(listener.getsockname()[1], [b"request"], 4, None)
        with connection.socket:
            for count in (2, 1, 1):
                connection.send(count)  # at 0, 1 and 2
            latencies: list[float] = []
            for count in (1, 2, 1):
                connection.answered(count, latencies)  # at 10, 20 and 30
    assert latencies == [10_000, 20_000, 19_000, 28_000]
