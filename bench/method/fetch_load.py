"""A load generator for requests with large answers: an answer is counted by its length, its bytes are thrown away.

The kernel discards them on arrival (MSG_TRUNC) instead of copying them: what a client does with the bytes is not the
broker's, and a generator that copies gigabytes a second would be what is measured.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from functools import partial

from bench.method.counters import Meter
from bench.method.load import Result, window

DISCARD_BYTES = 1 << 22
HEAD_BYTES = 4
SMALLEST_ANSWER = 200
"""An answer below has no records in it."""


class _Connection:
    def __init__(self, port: int, frames: list[bytes], scratch: memoryview) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = frames
        self.scratch = scratch
        self.next = 0
        self.sent_at: deque[float] = deque()
        self.head = b""
        self.left = 0
        """Bytes of the current answer that have not come."""

    def ask(self, count: int) -> None:
        for _ in range(count):
            self.socket.sendall(self.frames[self.next])
            self.next = (self.next + 1) % len(self.frames)
            self.sent_at.append(time.perf_counter())

    def receive(self, result: Result) -> int:
        """Take what has come; returns the answers that are complete with it."""
        done = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                if self.left:
                    want = min(self.left, DISCARD_BYTES)
                    got = self.socket.recv_into(self.scratch, want, socket.MSG_TRUNC | socket.MSG_DONTWAIT)
                    self._require(got)
                    self.left -= got
                    result.bytes += got
                    if self.left == 0:
                        done += 1
                        result.latencies_ms.append((time.perf_counter() - self.sent_at.popleft()) * 1e3)
                        if not self.sent_at:
                            break  # nothing more can come
                    continue
                part = self.socket.recv(HEAD_BYTES - len(self.head), socket.MSG_DONTWAIT)
                self._require(len(part))
                self.head += part
                if len(self.head) == HEAD_BYTES:
                    self.left, self.head = int.from_bytes(self.head, "big"), b""
                    if self.left < SMALLEST_ANSWER:
                        raise RuntimeError("an answer without records")
        return done

    @staticmethod
    def _require(got: int) -> None:
        if got == 0:
            raise ConnectionError("the broker closed a connection")


def fetch_load(
    port: int, frames: list[list[bytes]], *, in_flight: int, seconds: float, meter: Meter, settle_s: float = 0.3
) -> Result:
    """`in_flight` requests on a connection for each of `frames`, one after the other of its list."""
    scratch = memoryview(bytearray(DISCARD_BYTES))
    connections = {}
    poller = select.epoll()
    for each in frames:
        connection = _Connection(port, each, scratch)
        connections[connection.socket.fileno()] = connection
        poller.register(connection.socket.fileno(), select.EPOLLIN)
        connection.ask(in_flight)
    try:
        result = window(partial(_turn, poller, connections), settle_s, seconds, meter)
    finally:
        for connection in connections.values():
            connection.socket.close()
        poller.close()
    result.take(meter)
    return result


def _turn(poller: select.epoll, connections: dict[int, _Connection], seconds: float, result: Result) -> float:
    begin = now = time.perf_counter()
    end = begin + seconds
    while now < end:
        for fd, _ in poller.poll(1.0):
            connection = connections[fd]
            done = connection.receive(result)
            result.requests += done
            connection.ask(done)
        now = time.perf_counter()
    return now - begin
