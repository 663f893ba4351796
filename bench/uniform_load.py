"""Small requests as fast as a broker takes them, at a fraction of what it costs the broker to answer.

The requests of a connection are all of one size and lie one behind the other in memory; so are their answers, which
must repeat the first, that was decoded. So nothing is done for each request: as many as were answered are sent on.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from bench.brokers import cpu_seconds
from bench.load import Result, error_codes
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

RECEIVE_BYTES = 1 << 18


class _Connection:
    def __init__(self, port: int, frames: Sequence[bytes], in_flight: int, same_answers: bool) -> None:
        (self.size,) = {len(frame) for frame in frames}
        self.count = len(frames)
        self.ring = memoryview(b"".join([*frames, *frames]))
        self.next = 0
        self.in_flight = in_flight
        self.same_answers = same_answers
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer = b""
        """The first, with its length before it."""
        self.partial = b""
        self.sent_at = 0.0

    def first(self, api: int, version: int) -> None:
        """One request whose answer is decoded. Raises RuntimeError for an error in it."""
        self.send(1)
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            data += self.socket.recv(RECEIVE_BYTES)
        plain: Any = messages.plain(messages.decode_response(api, version, data[4:])[1])
        if errors := [code for code in error_codes(plain) if code != 0]:
            raise RuntimeError(f"{ApiKey(api).name} was refused: {errors[0]!r}")
        self.answer = data

    def send(self, count: int) -> None:
        self.sent_at = time.perf_counter()
        self.socket.sendall(self.ring[self.next * self.size : (self.next + count) * self.size])
        self.next = (self.next + count) % self.count

    def receive(self) -> int:
        """How many answers have come; as many requests go out."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed a connection")
        data = self.partial + data
        size = len(self.answer)
        count = len(data) // size
        self.partial = data[count * size :]
        if self.same_answers and data[: count * size] != self.answer * count:
            raise RuntimeError("an answer differs from the first")
        return count


def uniform_load(
    port: int, frames: Sequence[Sequence[bytes]], api: int, version: int, *, in_flight: int, seconds: float,
    warmup_s: float, pid: int, same_answers: bool = True,
) -> Result:  # fmt: skip
    """`in_flight` requests on a connection for each of `frames`; latencies are those of what was sent together."""
    poller = select.epoll()
    connections = {}
    for each in frames:
        connection = _Connection(port, each, in_flight, same_answers)
        connection.first(api, version)
        connections[connection.socket.fileno()] = connection
        poller.register(connection.socket.fileno(), select.EPOLLIN)
    for connection in connections.values():
        connection.send(in_flight)
    result = Result()
    begin = time.perf_counter() + warmup_s
    end = begin + seconds
    cpu_start = -1.0
    while (now := time.perf_counter()) < end:
        if cpu_start < 0 and now >= begin:
            begin, end, cpu_start = now, now + seconds, cpu_seconds(pid)
            result = Result()
        for fd, _ in poller.poll(1.0):
            connection = connections[fd]
            sent_at = connection.sent_at
            done = connection.receive()
            if done:
                result.latencies_ms.append((time.perf_counter() - sent_at) * 1e3)
                result.requests += done
                connection.send(done)
    result.seconds = time.perf_counter() - begin
    result.cpu_seconds = cpu_seconds(pid) - cpu_start
    for connection in connections.values():
        connection.socket.close()
    return result
