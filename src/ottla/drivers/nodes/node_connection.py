"""One connection from this node to another: Kafka requests out, pipelined, and their responses in, in the same order.

A node answers the requests of a connection in order, so what is in flight is a queue, and whoever asks for something
that may wait long (Fetch) has a connection of its own (`NodeClient`). A request that gets no answer in its time ends
the connection and everything that is in flight on it, as in Kafka's NetworkClient: what would come later could not be
told from the answer to another request by a peer that is in disorder.

Receiving. Short responses are copied out of one small buffer. A response that is longer than that is received right
into memory of its own, which the caller then owns: records of a fetch are copied nowhere before they are written.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from ottla.errors import ErrorCode, KafkaError
from ottla.model import MeantNode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.version import VERSION

RECEIVE_BUFFER_BYTES = 16_384
"""Holds any response that carries no records; a node has a handful of connections to others."""

RESPONSE_BYTES_MAX = 1 << 30
"""No response of a node that works is as long: the largest request it takes is 100 MiB by default, and a fetch gives
one batch beyond the bytes that were asked for. A length above it is not one."""

API_VERSIONS_VERSION = 5
SOFTWARE = ("ottla", VERSION)

_INT32 = struct.Struct(">i")


class Sink(Protocol):
    """Takes a long response while it arrives: `FetchStream`."""

    @property
    def is_over(self) -> bool: ...
    @property
    def is_busy(self) -> bool:
        """Whether there is more to do with what has arrived, which `take(0)` does."""

    def begin(self, size: int) -> None: ...
    def room(self) -> memoryview:
        """Where the next bytes go; not empty."""

    def take(self, count: int) -> None:
        """So many bytes have come."""


class InFlight(NamedTuple):
    correlation_id: int
    deadline: float
    """Deadline in the loop's time."""
    future: asyncio.Future[memoryview]
    sink: Sink | None = None


class NodeConnection(asyncio.BufferedProtocol):
    """Made by `NodeClient` for one destination. All methods belong to the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client_id: str, where: str) -> None:
        self.where = where
        """Address of the other node, for messages."""
        self.client_id = client_id
        self.versions: Mapping[int, tuple[int, int]] = {}
        """APIs of the other node (API key to lowest and highest version), once `negotiate` is done."""
        self.failure: KafkaError | None = None
        """Why this connection is of no more use."""
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[InFlight] = deque()
        self._next_id = 0
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        """Bytes of the buffer that are filled; the first of them begins a response."""
        self._long: memoryview | None = None
        """A response with memory of its own, while it arrives."""
        self._long_end = 0
        self._sink: Sink | None = None
        """The receiver of the response that is arriving."""
        self._paused = False
        self._held: deque[tuple[InFlight, bytes]] | None = None
        """Requests that wait until this node has logged in again; None while nothing has to wait."""
        self._renewal: asyncio.Handle | None = None
        self._renewing: asyncio.Task[None] | None = None

    # Requests.

    async def negotiate(self, timeout_s: float, meant: MeantNode | None = None) -> None:
        """Ask which versions the other node serves (KIP-511). Raises KafkaError: REBOOTSTRAP_REQUIRED where another
        node than `meant` has the address."""
        values: dict[str, Any] = {"client_software_name": SOFTWARE[0], "client_software_version": SOFTWARE[1]}
        if meant is not None:
            values |= {"cluster_id": meant.cluster_id, "node_id": meant.node_id}
        version = API_VERSIONS_VERSION
        while True:
            frame = await self.send(self.encode(ApiKey.API_VERSIONS, version, values), timeout_s)
            refused = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.unsupported_version
            # One that does not know the version answers in version 0, and says which ones it knows.
            answer = messages.decode_response(ApiKey.API_VERSIONS, 0 if refused else version, frame)[1]
            if not refused or version == 0:
                break
            known = (each.max_version for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS)
            version = max(0, min(next(known, 0), version - 1))
        if answer.error_code == ErrorCode.rebootstrap_required:
            raise KafkaError(answer.error_code, f"another node has the address of {meant}")
        if answer.error_code:
            raise KafkaError(answer.error_code, f"{self.where} did not answer which versions it supports")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def version_of(self, api_key: int, versions: tuple[int, int]) -> int:
        """The highest version that both sides know. Raises KafkaError (UNSUPPORTED_VERSION)."""
        low, high = self.versions.get(api_key, (0, -1))
        version = min(high, versions[1])
        if version < max(low, versions[0]):
            what = f"{self.where} supports no version from {versions[0]} to {versions[1]} of {ApiKey(api_key).name}"
            raise KafkaError(ErrorCode.unsupported_version, what)
        return version

    def encode(self, api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
        """A request for `send`, whose correlation id `send` puts in."""
        return messages.encode_request(api_key, version, 0, self.client_id, values)

    def send(
        self, request: bytes | bytearray, timeout_s: float, sink: Sink | None = None, *, is_login: bool = False
    ) -> asyncio.Future[memoryview]:
        """Send a whole request without its length, whose correlation id is replaced; gives the whole response.

        During another login (`renew_after`) only what belongs to it is sent, and the rest behind it.

        A long one goes to the `sink`, if there is one: it is over when the future is done, whose result is empty then.
        The future fails with KafkaError: NETWORK_EXCEPTION when the connection is lost, REQUEST_TIMED_OUT; and with
        what the sink raises, which ends the connection.
        """
        future: asyncio.Future[memoryview] = self._loop.create_future()
        transport = self._transport
        if transport is None:
            future.set_exception(self.failure or KafkaError(ErrorCode.network_exception, f"{self.where}: closed"))
            return future
        self._next_id = (self._next_id + 1) & 0x7FFF_FFFF
        deadline = self._loop.time() + timeout_s
        entry = InFlight(self._next_id, deadline, future, sink)
        if self._timer is None:
            self._watch(deadline)
        elif deadline < self._timer_at:
            self._timer.cancel()
            self._watch(deadline)
        data = _INT32.pack(len(request)) + request[:4] + _INT32.pack(self._next_id) + request[8:]
        if self._held is not None and not is_login:
            self._held.append((entry, data))
        else:
            self._in_flight.append(entry)
            transport.write(data)
        return future

    def renew_after(self, delay_s: float, log_in: Callable[[], Awaitable[None]]) -> None:
        """Log in again after so long (KIP-368). A failure ends the connection."""
        self._renewal = self._loop.call_later(delay_s, self._renew, log_in)

    def _renew(self, log_in: Callable[[], Awaitable[None]]) -> None:
        self._renewal = None
        if self.failure is None:
            self._renewing = self._loop.create_task(self._renewed(log_in))

    async def _renewed(self, log_in: Callable[[], Awaitable[None]]) -> None:
        """A server takes nothing but the login from its first request to its last, so everything else waits."""
        self._held = deque()
        try:
            await log_in()
        except KafkaError as error:
            self.fail(error)
            return
        held, self._held = self._held or (), None
        for entry, data in held:
            if self._transport is None:  # else `fail` has answered them
                return
            self._in_flight.append(entry)
            self._transport.write(data)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def _watch(self, deadline: float) -> None:
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        waiting = [*self._in_flight, *(entry for entry, _ in self._held or ())]
        if not waiting:
            return
        earliest = min(each.deadline for each in waiting)
        if earliest > self._loop.time():
            self._watch(earliest)
        else:
            self.fail(KafkaError(ErrorCode.request_timed_out, f"{self.where} does not answer"))

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._sink is not None:
            return self._sink.room()
        if self._long is not None:
            return self._long[self._long_end :]
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._sink is not None:
            self._pour(nbytes)
            return
        if self._long is not None:
            self._long_end += nbytes
            if self._long_end == len(self._long):
                frame, self._long = self._long, None
                self._answer(frame)
            return
        self._end += nbytes
        start, end = 0, self._end
        while end - start >= 4:
            (size,) = _INT32.unpack_from(self._buffer, start)
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                self.fail(KafkaError(ErrorCode.network_exception, f"{self.where} sent a response of {size} bytes"))
                return
            have = end - start - 4
            if have < size:
                if size + 4 > RECEIVE_BUFFER_BYTES and have >= 4:
                    sink = self._sink_of(start + 4)
                    if sink is not None:
                        self._end = 0
                        self._begin_pouring(sink, size, self._view[start + 4 : end])
                        return
                    self._long = memoryview(bytearray(size))
                    self._long[:have] = self._view[start + 4 : end]
                    self._long_end = have
                    start = end
                break
            self._answer(memoryview(bytes(self._view[start + 4 : start + 4 + size])))
            if self._transport is None:
                return
            start += 4 + size
        self._end = end - start
        if start and self._end:
            self._view[: self._end] = bytes(self._view[start:end])

    def _sink_of(self, position: int) -> Sink | None:
        """The receiver of the response with the correlation id at `position`; None also if that is not the next one
        due."""
        (correlation_id,) = _INT32.unpack_from(self._buffer, position)
        first = self._in_flight[0] if self._in_flight else None
        if first is None or first.correlation_id != correlation_id or first.future.done():
            return None
        return first.sink

    def _begin_pouring(self, sink: Sink, size: int, first: memoryview) -> None:
        sink.begin(size)
        self._sink = sink
        while first and self._sink is sink:
            room = sink.room()
            count = min(len(room), len(first))
            room[:count] = first[:count]
            first = first[count:]
            self._pour(count)

    def _pour(self, count: int) -> None:
        """Have the sink take what has come; others have their turn before it goes on with what is left of it."""
        sink = self._sink
        if sink is None:  # lost meanwhile
            return
        if self._in_flight[0].future.done():  # nobody waits any more
            self.fail(KafkaError(ErrorCode.network_exception, f"{self.where}: a response to no request"))
            return
        try:
            sink.take(count)
        except Exception as error:
            self._in_flight.popleft().future.set_exception(error)
            self.fail(KafkaError(ErrorCode.network_exception, f"{self.where} sent invalid data: {error}"))
            return
        if self._transport is None:
            return
        if sink.is_over:
            self._sink = None
            self._in_flight.popleft().future.set_result(memoryview(b""))
        if sink.is_busy and not self._paused:
            self._paused = True
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._paused = False
        if self._transport is None:
            return
        if self._sink is not None and self._sink.is_busy:
            self._pour(0)
        if not self._paused and self._transport is not None:
            self._transport.resume_reading()

    def _answer(self, frame: memoryview) -> None:
        (correlation_id,) = _INT32.unpack_from(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            what = f"{self.where} answered request {correlation_id}, which is not the next one"
            self.fail(KafkaError(ErrorCode.network_exception, what))
            return
        future = self._in_flight.popleft().future
        if not future.done():  # else nobody waits any more
            future.set_result(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        why = "closed the connection" if exc is None else f"is lost: {exc}"
        self.fail(KafkaError(ErrorCode.network_exception, f"{self.where} {why}"))

    def fail(self, error: KafkaError) -> None:
        """End the connection; what is in flight fails with `error`. A second call has no effect."""
        if self.failure is not None:
            return
        self.failure = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        self._long = self._sink = None
        waiting, self._in_flight = [*self._in_flight, *(entry for entry, _ in self._held or ())], deque()
        self._held = None
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(KafkaError(error.code, error.message))


def decoded(api_key: int, version: int, frame: memoryview) -> Any:
    """The response entity in a frame. Raises KafkaError (NETWORK_EXCEPTION) for bytes that are none."""
    try:
        return messages.decode_response(api_key, version, frame)[1]
    except MalformedRequest as error:
        raise KafkaError(ErrorCode.network_exception, f"a response that cannot be read: {error}") from error
