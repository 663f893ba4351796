"""A load generator for requests of one size with small answers, at a fraction of what it costs the broker to answer.

The requests of a connection are all of one size and lie one behind the other in memory; so are their answers, which
must repeat the first, that was decoded. So nothing is done for each request: as many as were answered are sent on.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.method.counters import Meter
from bench.method.load import Result, error_codes, window
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

RECEIVE_BYTES = 1 << 18

Fixed = Callable[[bytes], Sequence[int]]
"""The positions in the first answer, its length included, that must be the same in all."""


class _Connection:
    def __init__(self, port: int, frames: Sequence[bytes], in_flight: int, fixed: Fixed | None) -> None:
        (self.size,) = {len(frame) for frame in frames}
        turn = b"".join(frames) * -(-in_flight // len(frames))
        self.ring = memoryview(turn + turn)
        self.ring_bytes = len(turn)
        self.at = 0
        """Where the next byte to send lies in the ring."""
        self.due = 0
        """Bytes to send."""
        self.in_flight = in_flight
        self.fixed = fixed
        self.positions: Sequence[int] = ()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer = b""
        """The first, with its length before it."""
        self.partial = b""
        self.sent: deque[tuple[float, int]] = deque()
        """When requests that wait for their answers were sent, and how many at once."""
        self.writing = False

    def first(self, api: int | None, version: int) -> None:
        """One request whose answer is decoded, if an API is given. Raises RuntimeError for an error in it."""
        self.socket.sendall(self.ring[: self.size])
        self.at = self.size % self.ring_bytes
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            data += self.socket.recv(RECEIVE_BYTES)
        if api is not None:
            plain: Any = messages.plain(messages.decode_response(api, version, data[4:])[1])
            if errors := [code for code in error_codes(plain) if code != 0]:
                raise RuntimeError(f"{ApiKey(api).name} was refused: {errors[0]!r}")
        self.answer = data
        if self.fixed is not None:
            self.positions = self.fixed(data)
        self.socket.setblocking(False)

    def send(self, count: int) -> bool:
        """Send `count` requests more, and what is left of others; True where the socket does not take all."""
        if count:
            self.sent.append((time.perf_counter(), count))
            self.due += count * self.size
        with contextlib.suppress(BlockingIOError):
            while self.due:
                sent = self.socket.send(self.ring[self.at : self.at + self.due])
                self.due -= sent
                self.at = (self.at + sent) % self.ring_bytes
        return self.due > 0

    def answered(self, count: int, latencies_ms: list[float]) -> None:
        """Answers come in the order of the requests: note how long each has taken."""
        now = time.perf_counter()
        while count:
            sent_at, together = self.sent.popleft()
            if together > count:
                self.sent.appendleft((sent_at, together - count))
                together = count
            latencies_ms += [(now - sent_at) * 1e3] * together
            count -= together

    def receive(self) -> int:
        """How many answers have come; as many requests may go out."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed a connection")
        if self.partial:
            data = self.partial + data
        size = len(self.answer)
        count = len(data) // size
        end = count * size
        self.partial = data[end:]
        if self.fixed is None:
            if data[:end] != self.answer * count:
                raise RuntimeError("an answer differs from the first")
        else:
            for position in self.positions:
                if data[position:end:size] != self.answer[position : position + 1] * count:
                    port = self.socket.getpeername()[1]
                    found = set(data[position:end:size])
                    raise RuntimeError(f"port {port}: an answer differs from the first in byte {position}: {found}")
        return count


def uniform_load(
    port: int | Sequence[int],
    frames: Sequence[Sequence[bytes]],
    api: int | None,
    version: int,
    *,
    in_flight: int,
    seconds: float,
    meter: Meter,
    settle_s: float = 0.3,
    payload_bytes: int = 0,
    fixed: Fixed | None = None,
) -> Result:
    """`in_flight` requests on a connection for each of `frames`, to the port beside it where there are several.

    All bytes of an answer must be those of the first, or those at the positions that `fixed` names. Without an API
    the first answer is not decoded. `payload_bytes` is what a request counts as in the result. What is answered in the
    first `settle_s`, while connections are new, is not measured.
    """
    poller = select.epoll()
    connections = {}
    ports = [port] * len(frames) if isinstance(port, int) else port
    for to, each in zip(ports, frames, strict=True):
        connection = _Connection(to, each, in_flight, fixed)
        connection.first(api, version)
        connections[connection.socket.fileno()] = connection
        poller.register(connection.socket.fileno(), select.EPOLLIN)
    for fd, connection in connections.items():
        _send(poller, fd, connection, in_flight)
    try:
        result = window(partial(_turn, poller, connections), settle_s, seconds, meter)
    finally:
        for connection in connections.values():
            connection.socket.close()
        poller.close()
    result.bytes = result.requests * payload_bytes
    result.take(meter)
    return result


def _turn(poller: select.epoll, connections: dict[int, _Connection], seconds: float, result: Result) -> float:
    """Answer to answer for so long; returns how long it was."""
    latencies = result.latencies_ms
    begin = now = time.perf_counter()
    end = begin + seconds
    while now < end:
        for fd, event in poller.poll(1.0):
            connection = connections[fd]
            done = connection.receive() if event & ~select.EPOLLOUT else 0
            if done:
                connection.answered(done, latencies)
                result.requests += done
            if done or connection.writing:
                _send(poller, fd, connection, done)
        now = time.perf_counter()
    return now - begin


def _send(poller: select.epoll, fd: int, connection: _Connection, count: int) -> None:
    left = connection.send(count)
    if left != connection.writing:
        connection.writing = left
        poller.modify(fd, select.EPOLLIN | select.EPOLLOUT if left else select.EPOLLIN)
