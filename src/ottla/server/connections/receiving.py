"""The memory of requests: the buffer that all connections of a node receive into, and what each needs beside it.

A frame that is received in pieces, or handled for a while, has a buffer of its connection's own, which grows with the
bytes that arrive. All of these together are limited (`queued.max.request.bytes`). A connection that needs more than is
left pauses and joins a queue. The first of the queue may exceed the limit by its one frame, so that frames of many
clients that fill the limit without being whole do not stop each other for ever: they are completed one after another.
A client that is first and sends next to nothing for `STALL_SECONDS` is disconnected, as the others wait for it.

So requests of clients take `queued.max.request.bytes` and one frame (`socket.request.max.bytes`), and for each
connection what it received before its buffer was counted: NARROW_BYTES, doubled, once the limit is reached.
Requests that arrive whole in so many bytes are served all the while.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Collection
from functools import partial
from typing import Any, Final, Protocol

from ottla.config.typed import TypedSettings
from ottla.logs import fields

RECEIVE_BUFFER_BYTES = 1 << 20
"""The shared receive buffer: many pipelined batches at once, so that few frames are cut at its end and have to move."""

RECEIVE_AHEAD_BYTES = 4096
"""Bytes received beyond those that wait: an own buffer has at least this much more."""

HEAD_BYTES_MAX = 16_384
"""The head of a frame is kept as it is up to here, and put before the bytes that come next: what copying it costs is
less than receiving costs. A longer one moves to a buffer that doubles as bytes really arrive; no claimed length is
believed."""

KEEP_BYTES_MIN = 262_144
"""A smaller own buffer is cheaper to create again than to hold for a connection that may be idle."""

KEEP_BYTES_MAX = 2 << 20
"""A larger own buffer is given back as soon as it is empty."""

OUTBOX_BYTES_MAX = 262_144
"""Unsent response bytes beyond which no further request of this connection is begun."""

TURN_BYTES_MAX = 262_144
"""Bytes received from one connection without a look at the others: a fraction of a millisecond of work."""

TURN_COST_MAX = 64
"""What is answered to one connection before the others have their turn, of one that sent several requests: 16 KB of
records. Small answers cost less than a turn. Kafka's network threads take one request of each connection in turn."""

REQUEST_COST = 16
"""A small request with its answer, in the units of `drivers/cooperative.py`."""

BYTES_COST_SHIFT = 8
"""A kilobyte that is received, checked and written into the page cache costs four units, a quarter of a small request:
so few large batches are one slice, and who asks for little beside them waits for few."""

PENDING_MAX = 100
"""Requests of one connection begun and not answered."""

HALF_CLOSED_SECONDS_MAX = 10.0
"""How long a client that will send nothing more is waited for, for its answers."""


class ReceivingListener(Protocol):
    """The listener of some connections: `listener.Listener`."""

    receive_view: memoryview

    @property
    def request_bytes_max(self) -> int: ...
    @property
    def buffers(self) -> ReceiveBuffers: ...
    @property
    def connections(self) -> Collection[Receiver]: ...


class Receiver(Protocol):
    """The receiving half of a connection: `connection.CompiledConnection`."""

    frame_bytes_max: int
    closed: bool
    client_host: str
    _end: int
    _start: int
    _growth: int
    _lent: list[tuple[int, Any]] | None
    _muted: bool
    _own: bytearray | None
    _own_view: memoryview | None
    _pending: deque[Any]
    _starved: bool
    _waiting: Any

    @property
    def _listener(self) -> Any: ...
    def trim(self) -> None: ...
    def abort(self) -> None: ...
    def _drop_own(self) -> None: ...
    def _advance(self) -> None: ...
    def _pause(self) -> None: ...


_NETWORK = logging.getLogger("ottla.network")

FRAMES_QUEUED: Final = 2
"""Requests of `socket.request.max.bytes` that are the limit where `queued.max.request.bytes` is not set."""

NARROW_BYTES: Final = 65_536
"""Bytes received at once from a connection while the limit is reached: small requests are still served."""

GROWTH_BYTES_MAX: Final = 1 << 20
"""A buffer doubles up to here, then it grows by this: a fraction of a millisecond, little of it for nothing."""

GROWTH_PER_ROUND_MAX: Final = 4 << 20
"""Growth of all buffers together between two checks of the sockets; beyond it each takes what is received at once."""

_ZEROS: Final = bytes(GROWTH_BYTES_MAX)
"""Never written, so it takes no memory."""

STALL_SECONDS: Final = 5.0
STALL_BYTES_MIN: Final = 4 << 20
"""How much the connection that the others wait for has to send in this time."""

GIVE_BACK_BYTES_MIN = 16 << 20
"""A rush of clients has left more behind than a busy node takes and drops all the time."""

GIVE_BACK_SECONDS = 1.0
"""How long after it free memory is given back, at most that often."""


def limit_of_frames(connection: Receiver) -> str:
    """The limit of a client's frames, with the name of its setting: another one before its login."""
    limit = connection.frame_bytes_max
    is_known = limit == connection._listener.request_bytes_max
    return f"{'socket.request.max.bytes' if is_known else 'sasl.server.max.receive.size'} is {limit}"


def limit_of(queued_bytes_max: int, frame_bytes_max: int) -> int:
    """Bytes of all own buffers. `queued_bytes_max` is the setting: not positive where it is left to the node."""
    return queued_bytes_max if queued_bytes_max > 0 else FRAMES_QUEUED * frame_bytes_max


class ReceiveBuffers:
    """The bytes of all buffers that connections of some listeners have of their own, and the connections that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, receive_buffer: bytearray) -> None:
        self.bytes = 0
        """**Invariant**: what `taken` and `may_take` were told, without what was `dropped`."""
        self.limit = limit
        self.first: Receiver | None = None
        """The connection that may exceed the limit, until the memory of its frame is free again."""
        self.is_scarce = False
        """The limit is reached."""
        self.keep_bytes_max = KEEP_BYTES_MAX
        """A larger empty buffer is given back at once; while memory is scarce any."""
        self._loop = loop
        self._whole = memoryview(receive_buffer)
        self._narrow = self._whole[:NARROW_BYTES]
        self._listeners: weakref.WeakSet[ReceivingListener] = weakref.WeakSet()
        self._waiting: dict[Receiver, int] = {}
        """The bytes that each needs next, in the order in which they came."""
        self._watch: asyncio.Handle | None = None
        self._seen = 0
        """Bytes that `first` had received when the watch last looked."""
        self._grown = 0
        """Bytes by which buffers have grown since the loop looked at its sockets."""
        self._bytes_max = 0
        """Since free memory was last given back."""
        self._gives_back = False

    def serve(self, listener: ReceivingListener) -> None:
        self._listeners.add(listener)
        listener.receive_view = self._narrow if self.is_scarce else self._whole

    @property
    def waiting(self) -> int:
        """Connections that wait for memory."""
        return len(self._waiting)

    def taken(self, size: int) -> None:
        """A connection keeps what it has received."""
        self.bytes += size
        if self.bytes > self._bytes_max:
            self._bytes_max = self.bytes
        if self.bytes >= self.limit and not self.is_scarce:
            self._become_scarce()

    def may_take(self, connection: Receiver, size: int) -> bool:
        """Whether a connection may grow by `size`, which is counted then. Otherwise it grows later, and goes on."""
        if connection is self.first or (not self._waiting and self.bytes + size <= self.limit):
            self.taken(size)
            return True
        self._waiting[connection] = size
        if not self.is_scarce:
            self._become_scarce()
        self._go_on()
        return False

    def growth(self, size: int) -> int:
        """How much of `size` a buffer grows by now: to fill it with zeros takes time, and many may want it at once."""
        if self._grown + size > GROWTH_PER_ROUND_MAX:
            size = min(size, NARROW_BYTES)
        if not self._grown:
            self._loop.call_soon(self._next_round)
        self._grown += size
        return size

    def _next_round(self) -> None:
        self._grown = 0

    def dropped(self, size: int) -> None:
        self.bytes -= size
        if self._waiting or self.is_scarce:
            self._loop.call_soon(self._go_on)
        if self._bytes_max - self.bytes >= GIVE_BACK_BYTES_MIN and not self._gives_back:
            self._gives_back = True
            self._loop.call_later(GIVE_BACK_SECONDS, self._give_back)

    def over(self, connection: Receiver) -> None:
        """Nothing of the connection is buffered any more, or it is gone."""
        if self._waiting:
            self._waiting.pop(connection, None)
        if self.first is connection:
            self.first = None
            self._loop.call_soon(self._go_on)

    def _become_scarce(self) -> None:
        self.is_scarce = True
        self.keep_bytes_max = 0
        for listener in self._listeners:
            listener.receive_view = self._narrow
        self._loop.call_soon(self._trim)

    def _trim(self) -> None:
        for listener in self._listeners:
            for connection in [*listener.connections]:
                connection.trim()

    def _go_on(self) -> None:
        """Continue receiving where memory allows, and the first waiting connection in any case."""
        while self._waiting:
            connection, size = next(iter(self._waiting.items()))
            if self.bytes + size > self.limit:
                if self.first is not None:
                    break
                self.first, self._seen = connection, _received(connection)
            del self._waiting[connection]
            self.taken(size)
            self._loop.call_soon(_grow, connection, size)
        if not self._waiting and self.is_scarce and self.bytes < self.limit:
            self.is_scarce = False
            self.keep_bytes_max = KEEP_BYTES_MAX
            for listener in self._listeners:
                listener.receive_view = self._whole
        if self._waiting and self._watch is None:
            self._watch = self._loop.call_later(STALL_SECONDS, self._look)

    def _look(self) -> None:
        """End the connection that the others wait for, if it does not send."""
        self._watch = None
        first = self.first
        if first is not None and _is_receiving(first):
            if _received(first) - self._seen < STALL_BYTES_MIN:
                what = "closing a connection that sends a large request too slowly while others wait for memory"
                _NETWORK.info(what, extra=fields(client=first.client_host, bytes=_received(first)))
                first.abort()
            else:
                self._seen = _received(first)
        if self._waiting:
            self._watch = self._loop.call_later(STALL_SECONDS, self._look)

    def _give_back(self) -> None:
        from ottla import memory

        self._gives_back = False
        self._bytes_max = self.bytes
        memory.give_back()


# What a connection does with its own buffer, where that is seldom.


def _received(connection: Receiver) -> int:
    """Bytes of a frame that has not wholly arrived."""
    return connection._end - connection._start


def _is_receiving(connection: Receiver) -> bool:
    """Whether a frame has not wholly arrived, and nothing but its client keeps it from going on."""
    held_up = connection._waiting is not None or connection._starved or connection._muted
    return connection._own is not None and not held_up


def keep(
    connection: Receiver, data: bytearray, view: memoryview, start: int, end: int, need: int, is_blocked: bool
) -> None:
    """Keep `data[start:end]`, the head of a frame of `need` bytes (or frames that must wait), in the own buffer: it may
    lie there already, or the buffer is made for it."""
    rest = end - start
    own = connection._own
    if own is None or (data is not own and len(own) < rest + RECEIVE_AHEAD_BYTES):
        room = max(rest + RECEIVE_AHEAD_BYTES, min(need, 2 * rest))
        own = bytearray(room)
        own[:rest] = view[start:end]
        connection._drop_own()
        connection._own, connection._own_view = own, memoryview(own)
        connection._listener.buffers.taken(room)
        connection._end = rest
    elif data is own and len(own) - start >= need and len(own) > end:
        connection._start, connection._end = start, end
    else:
        assert connection._own_view is not None
        connection._own_view[:rest] = view[start:end]
        connection._start, connection._end = 0, rest
    if is_blocked:
        if len(own) - connection._end < RECEIVE_AHEAD_BYTES:
            connection._pause()
    elif len(own) == connection._end and not connection._growth and not connection._starved:
        ask_for_more(connection, rest, need)


def ask_for_more(connection: Receiver, rest: int, need: int) -> None:
    """The own buffer is full of `rest` bytes of a frame of `need`."""
    size = min(max(rest, RECEIVE_AHEAD_BYTES), GROWTH_BYTES_MAX, max(need - rest, RECEIVE_AHEAD_BYTES))
    if connection._listener.buffers.may_take(connection, size):
        connection._growth = size
    else:
        connection._starved = True
        connection._pause()


def _grow(connection: Receiver, size: int) -> None:
    """There is memory now for `size` more bytes."""
    connection._starved = False
    if connection._own is None:
        connection._listener.buffers.dropped(size)
        _be_over(connection)
        return
    connection._growth += size
    connection._advance()


def enlarge(connection: Receiver) -> memoryview:
    """Enlarge the connection's own buffer: in place if it has no views, else as a copy."""
    own, view = connection._own, connection._own_view
    assert own is not None and view is not None
    buffers = connection._listener.buffers
    size = buffers.growth(connection._growth)
    try:
        view.release()
        own.extend(memoryview(_ZEROS)[:size])
    except BufferError:
        own = bytearray(len(own) + size)
        own[: connection._end] = memoryview(connection._own or b"")[: connection._end]
        connection._own = own
    connection._growth -= size
    connection._own_view = memoryview(own)
    return connection._own_view


def give(connection: Receiver) -> bool:
    """Leave the connection's own buffer to who handles a request in it; returns True."""
    own = connection._own
    assert own is not None
    size = len(own) + connection._growth
    connection._own = connection._own_view = None
    connection._start = connection._end = connection._growth = 0
    connection._listener.loop.call_soon(lend, connection, size)
    return True


def lend(connection: Receiver, size: int) -> None:
    """A buffer of `size` was given to a request: it is among those that are pending, or answered already."""
    if connection._pending:
        lent = (size, connection._pending[-1])
        connection._lent = [lent] if connection._lent is None else [*connection._lent, lent]
    else:
        connection._listener.buffers.dropped(size)
        _be_over(connection)


def return_lent(connection: Receiver) -> None:
    """Count no more what was given to requests that are answered, or are not waited for any more."""
    buffers = connection._listener.buffers
    kept = []
    for size, slot in connection._lent or ():
        if connection.closed and slot.task is not None:
            slot.task.add_done_callback(partial(_ended, buffers, size))
        elif connection.closed or slot not in connection._pending:
            buffers.dropped(size)
        else:
            kept.append((size, slot))
    connection._lent = kept or None
    _be_over(connection)


def _ended(buffers: ReceiveBuffers, size: int, task: asyncio.Task[None]) -> None:
    buffers.dropped(size)


def _be_over(connection: Receiver) -> None:
    if connection._own is None and connection._lent is None:
        connection._listener.buffers.over(connection)


class Receiving:
    """The receive buffers of a node's listeners."""

    def __init__(self, queued_bytes_max: int = -1, frame_bytes_max: int = 100 << 20) -> None:
        self.buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._limit = limit_of(queued_bytes_max, frame_bytes_max)
        self._kinds: dict[object, ReceiveBuffers] = {}

    @classmethod
    def from_settings(cls, config: TypedSettings) -> Receiving:
        return cls(config.queued_max_request_bytes, config.socket_request_max_bytes)

    def of(self, kind: object) -> ReceiveBuffers:
        """The buffers that the listeners of a kind share. Requests of clients leave room for those of nodes."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = ReceiveBuffers(asyncio.get_running_loop(), self._limit, self.buffer)
        return found
