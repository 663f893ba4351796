"""One client's connection: frames out of received bytes, requests in order, responses in order.

Receiving. All connections of a node share one receive buffer, in which whole frames are handled. The head of a frame
is kept while it is short, else it moves to a buffer of the connection's own, which grows with what arrives. So none
holds more than twice what was sent, and produced records are copied nowhere on their way to the page cache.

Order. As in Kafka, one request of a connection is handled at a time, and the next one waits for it. An API marked
`pipelined` (produce, which waits for replicas or an fsync) lets others of its kind begin, no other.

Holding back. No request is read from a peer that does not take its responses, or has too many unanswered.

Yielding. Requests have costs (`drivers/cooperative.py`). Once a slice's worth of requests was begun, of one client or
all, the rest waits until the loop has looked at every socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from ottla.clock import elapsed_s
from ottla.drivers.cooperative import SLICE
from ottla.protocol.messages import MalformedRequest
from ottla.server import dispatch
from ottla.server.api import RECORDS_COST_SHIFT, Call, Deferred, InOrder, Response, Shortcut, Slot
from ottla.server.connections import receiving
from ottla.server.connections.outbox import EncodedResponse, Outbox
from ottla.server.connections.receiving import (
    BYTES_COST_SHIFT,
    HEAD_BYTES_MAX,
    KEEP_BYTES_MIN,
    OUTBOX_BYTES_MAX,
    PENDING_MAX,
    RECEIVE_AHEAD_BYTES,
    REQUEST_COST,
    TURN_BYTES_MAX,
    TURN_COST_MAX,
    keep,
)

if TYPE_CHECKING:
    from ottla.server.api import ConnectionQuotas, Login, Outcome
    from ottla.server.connections.connection_ports import ConnectionListener


def _int32(data: bytearray, at: int) -> int:
    value = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return value if value < 1 << 31 else value - (1 << 32)


class _Suspended(Slot):
    """The place of a response that comes later."""

    __slots__ = ("_connection",)

    def __init__(self, call: Call, began_s: float, connection: CompiledConnection) -> None:
        # Written out: a call of the base's would go through Python.
        self.call = call
        self.began_s = began_s
        self.ready = False
        self.response = self.deferred = self.task = None
        self._connection = connection

    def complete(self, result: Response | BaseException) -> None:
        self._connection._completed(self, result)


class CompiledConnection:
    """`Connection` without its base class, which is Python's: a compiled class cannot have one."""

    __slots__ = (
        "_end", "_ended", "_fast", "_fast_head", "_growth", "_head", "_holding", "_lent", "_linger", "_listener",
        "_muted", "_muted_until_s", "_own", "_own_view", "_paused", "_pending", "_queued", "_scheduler", "_start",
        "_starved", "_transport", "_unmuting", "_unsent", "_waiting", "answer_together", "apis", "client_host",
        "closed", "closing", "frame_bytes_max", "listener_name", "login", "outbox", "principal", "quotas", "shortcuts",
        "tick",
    )  # fmt: skip

    def __init__(self, listener: ConnectionListener[CompiledConnection]) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._head = b""
        """The first bytes of a frame, while there is no own buffer."""
        self._own: bytearray | None = None
        self._own_view: memoryview | None = None
        self._start = 0
        """Where the first unhandled byte lies in the own buffer. Invariant: _start <= _end <= len(_own)."""
        self._end = 0
        self._growth = 0
        """Bytes by which the own buffer grows before the next are received."""
        self._starved = False
        """Whether it waits for memory, to grow."""
        self._lent: list[tuple[int, Slot]] | None = None
        """Sizes of buffers that were given to requests, and the last request that was begun by then."""
        self._paused = False
        self._scheduler = listener.scheduler
        self._queued = False
        """Whether requests wait for the scheduler."""
        self._ended = False
        """Whether the peer has closed its sending side meanwhile."""
        self._waiting: Slot | None = None
        """The request that the next one must wait for."""
        self._holding = False
        """Whether the next request waits for all that were begun."""
        self._pending: deque[Slot] = deque()
        """Begun requests without a sent response, oldest first; empty while everything is answered at once."""
        self.shortcuts: dict[int, Shortcut] = {}
        """Facts that handlers learned about this client's requests, by API key << 16 | version."""
        self._fast_head = self._fast = 0
        """Requests of this API and version that shortcuts have answered and that are not counted yet."""
        self._linger: asyncio.Handle | None = None
        """Ends a half-closed connection."""
        self._muted = False
        """Whether the client is beyond a quota, and nothing more of it is handled for the time being."""
        self._muted_until_s = 0.0
        """In the loop's time, while `_unmuting` is set."""
        self._unmuting: asyncio.Handle | None = None
        self.quotas: ConnectionQuotas | None = None
        """Measures its requests, while there are quotas."""
        self.closed = False
        self.closing = False
        """Close as soon as what is pending was answered and sent."""
        self.outbox: Outbox
        self.client_host = ""
        self.listener_name = listener.name
        self.apis = listener.apis
        self.principal = "User:ANONYMOUS"
        self.login: Login | None = None  # on listeners with SASL
        self.frame_bytes_max = listener.request_bytes_max
        self._unsent = 0
        """Bytes in the outbox at the last tick."""
        self.tick = listener.tick
        self.answer_together = listener.answer_together

    # Events of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if isinstance(peer, tuple) else "localhost"
        sender = self._listener.network.sender(transport)
        self.outbox = Outbox(self._listener.loop, sender, self._advance, lambda error: self.abort())
        if not self._listener.admit(self):
            self.abort()
        elif self._listener.quotas is not None:
            self.quotas = self._listener.quotas.of_connection(self)

    def connection_lost(self, error: Exception | None) -> None:
        from ottla.server.connections.ends import lost  # once for a connection

        self.closed = True
        self._transport = None
        lost(self)

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Register the callback, instead of an earlier one, for when this connection is lost, or was already."""
        self._listener.call_when_lost(self, callback)

    def eof_received(self) -> bool:
        """A peer that only closed its sending side still gets the answers that are due."""
        from ottla.server.connections.ends import half_close  # rare

        return half_close(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        view = self._own_view
        if view is None:
            head, view = self._head, self._listener.receive_view
            if head:
                view[: len(head)] = head
                return view[len(head) :]
            return view
        if self._growth:
            view = receiving.enlarge(self)
        return view[self._end :] if self._end else view

    def buffer_updated(self, nbytes: int) -> None:
        listener = self._listener
        self.tick = listener.tick
        if listener.served is not self:
            listener.served = self
            listener.served_bytes = nbytes
        else:
            listener.served_bytes += nbytes
            if listener.served_bytes > TURN_BYTES_MAX and not self._paused:
                # The loop reads a socket again and again while it has more than a buffer's worth.
                listener.served_bytes = 0
                self._pause()
                listener.loop.call_soon(self._advance)
        if self._own is None:
            if self._head:
                nbytes += len(self._head)
                self._head = b""
            if (self._pending or self.outbox.queued or self._muted) and self._blocked():
                if not self.closing:
                    self._keep(listener.receive_buffer, listener.receive_view, 0, nbytes, 4)
                return
            if self._scheduler.spent >= SLICE and self._scheduler.is_over():
                self._queue(light=nbytes < RECEIVE_AHEAD_BYTES and _int32(listener.receive_buffer, 0) + 4 == nbytes)
                self._keep(listener.receive_buffer, listener.receive_view, 0, nbytes, 4)
                return
            self._consume(listener.receive_buffer, listener.receive_view, 0, nbytes)
            return
        self._end += nbytes
        blocked = self._blocked()
        if not blocked and self._scheduler.spent >= SLICE and self._scheduler.is_over():
            self._queue(light=False)
            blocked = True
        if blocked:
            if len(self._own) - self._end < RECEIVE_AHEAD_BYTES:
                self._pause()
            return
        assert self._own_view is not None
        self._consume(self._own, self._own_view, self._start, self._end)

    def _queue(self, *, light: bool) -> None:
        """Queue the received requests until it is their turn."""
        self._queued = True
        self._scheduler.wait(self._resume, light=light)

    def _resume(self) -> None:
        self._queued = False
        self._go_on()

    def _go_on(self) -> None:
        self._advance()
        if self._ended and not self._queued and not self._muted and not self.closed:
            self.closing = True
            if self.idle:
                self.close()

    # Requests.

    def _blocked(self) -> bool:
        """Whether the next request has to wait. `_advance` goes on once it need not."""
        return (
            self._waiting is not None  # until `_completed`: a request that no other may pass
            or self._holding  # until `_answer_ready` has sent all of `_pending`
            or self._queued  # until `_resume`: the loop, or this connection, has had its share
            or self._muted  # until `muting` ends it: a quota
            or self.outbox.queued > OUTBOX_BYTES_MAX  # until the client reads
            or len(self._pending) >= PENDING_MAX  # until the oldest is answered
        )

    def _consume(self, data: bytearray, view: memoryview, start: int, end: int) -> None:
        """Handle every whole frame in `data[start:end]`, send what they answered, and keep the rest."""
        scheduler, began = self._scheduler, self._scheduler.spent
        self._listener.began_s = elapsed_s()
        need = 4
        try:
            while end - start >= 4 and not self.closing:
                size = _int32(data, start)
                if not 0 <= size <= self.frame_bytes_max:  # a login before it may have changed it
                    raise MalformedRequest(f"frame of {size} bytes; {receiving.limit_of_frames(self)}")
                need = size + 4
                if end - start < need:
                    break
                if self._pending and need >= 8 and self._must_hold(_int32(data, start + 4) >> 16):
                    self._holding = True
                    break
                self._request(data, view, start + 4, start + need)
                cost = REQUEST_COST + (need >> BYTES_COST_SHIFT)
                scheduler.spent += cost
                began += cost
                start, need = start + need, 4
                spent = scheduler.spent
                if (spent - began >= TURN_COST_MAX or spent >= SLICE) and end - start >= 4 and not self._blocked():
                    is_whole = _int32(data, start) <= end - start - 4
                    if (is_whole and spent - began >= TURN_COST_MAX) or (spent >= SLICE and scheduler.is_over()):
                        self._queue(light=False)
                        break
                if self._blocked():
                    self.outbox.flush()
                    if self._blocked():
                        break
        except Exception as error:
            self._end_by(error)
            return
        self.outbox.flush()
        if self._fast:
            self._count_fast()
        if not self.closing:
            self._keep(data, view, start, end, need)

    def _must_hold(self, key: int) -> bool:
        """Whether a request of this API is not begun yet: those before it are, and are of another one."""
        return bool(self._pending[-1].call.api.key != key)

    def _count_fast(self) -> None:
        """Their answers leave together at the end of a read, so they share its time: one look at the clock for all."""
        head = self._fast_head
        listener = self._listener
        metrics = listener.metrics
        stats = metrics.api(head >> 16)
        stats.answered(head & 0xFFFF, elapsed_s() - listener.began_s, self._fast)
        self._fast = 0

    def _request(self, data: bytearray, view: memoryview, start: int, stop: int) -> None:
        frame = view[start:stop]
        if self.login is not None and self.login.intercepts:
            self._take(*self.login.begin(frame))
            return
        if stop - start > 8:
            head = _int32(data, start)
            shortcut = self.shortcuts.get(head) if self.quotas is None else self.quotas.shortcut(head, frame)
            last = self._pending[-1].call.context if self._pending else None
            if shortcut is not None and (last is None or last.api_key << 16 | last.api_version == head):
                answer = shortcut(frame, _int32(data, start + 4))
                if isinstance(answer, EncodedResponse) or type(answer) is bytes:
                    if last is not None:  # those before it are not answered yet
                        self._append_ready(self._pending[-1].call, answer or None)
                        return
                    if head != self._fast_head and self._fast:
                        self._count_fast()
                    self._fast_head = head
                    self._fast += 1
                    if isinstance(answer, EncodedResponse):
                        self._scheduler.spent += self.outbox.write_frame(answer) >> RECORDS_COST_SHIFT
                    elif answer:
                        self.outbox.write((answer,), len(answer))
                    return
                if answer is not None:
                    self._take(answer[0], answer[1])  # type: ignore[arg-type]
                    return
        begin = dispatch.begin(self._listener.node, self, frame) if self.quotas is None else self.quotas.begin(frame)
        self._take(begin[0], begin[1])

    def _take(self, call: Call, outcome: Outcome) -> None:
        """Answer a request that was begun, or wait for its answer."""
        if type(outcome) is EncodedResponse:  # the look at an abstract class below is slow
            pass
        elif isinstance(outcome, Deferred):
            deferred = outcome
            if deferred.done:
                outcome = self._result(call, deferred.result)
            else:
                slot = self._suspend(call)
                slot.deferred = deferred
                deferred.slot = slot
                return
        elif isinstance(outcome, InOrder | Awaitable):
            slot = self._suspend(call)
            if isinstance(outcome, InOrder):
                self._waiting, outcome = slot, outcome.work
            slot.task = self._listener.loop.create_task(self._await(slot, outcome))
            return
        if self._pending:
            self._append_ready(call, outcome)
        else:
            self._write(call, outcome, self._listener.began_s)

    def _append_ready(self, call: Call, response: Response) -> None:
        slot = Slot(call, self._listener.began_s)
        slot.ready, slot.response = True, response
        self._pending.append(slot)

    def _suspend(self, call: Call) -> Slot:
        slot = _Suspended(call, self._listener.began_s, self)
        self._pending.append(slot)
        if not call.api.pipelined:
            self._waiting = slot
        return slot

    async def _await(self, slot: Slot, outcome: Awaitable[Outcome]) -> None:
        result: Any
        try:
            result = await outcome
            if isinstance(result, Awaitable):
                if self._waiting is slot:  # only what comes now is pipelined
                    self._waiting = None
                    self._listener.loop.call_soon(self._advance)
                result = await result
        except Exception as error:
            result = error
        slot.task = None
        if isinstance(result, Deferred) and not result.done:
            if self._waiting is slot and slot.call.api.pipelined:
                self._waiting = None
                self._listener.loop.call_soon(self._advance)
            if self.closed:
                result.cancel()
            slot.deferred = result
            result.slot = slot
            return
        self._completed(slot, result.result if isinstance(result, Deferred) else result)

    def keep_frame(self, frame: memoryview) -> memoryview:
        """The frame that is being handled, in memory that stays as it is."""
        return frame if self.give_received() else memoryview(bytearray(frame))

    def give_received(self) -> bool:
        """Leave the buffer of this connection's own, if that is where frames come from now, to who handles them. It
        counts as this connection's until the request is answered."""
        return self._own is not None and receiving.give(self)

    def _result(self, call: Call, result: Response | BaseException) -> Response:
        return dispatch.failure(call, result) if isinstance(result, BaseException) else result

    def _completed(self, slot: Slot, result: Response | BaseException) -> None:
        """A suspended request has its response (or exception) now. Raises nothing: others may call it."""
        if self.closed:
            return
        if self._waiting is slot:
            self._waiting = None
        slot.deferred = None
        try:
            slot.response = self._result(slot.call, result)
            slot.ready = True
            self._answer_ready()
        except Exception as error:
            self._end_by(error, slot)

    def _answer_ready(self) -> None:
        pending = self._pending
        while pending and pending[0].ready:
            done = pending.popleft()
            self._write(done.call, done.response, done.began_s)
        self._holding = self._holding and bool(pending)
        if self._lent is not None:
            receiving.return_lent(self)
        answering = self._listener.answering
        if answering is None:
            self.send()
        else:
            answering[self] = None

    def send(self) -> None:
        """Send what was answered, and go on with what waited for it."""
        self.outbox.flush()
        self._advance()

    def _write(self, call: Call, response: Response, began_s: float) -> None:
        if self.quotas is not None:
            response = self.quotas.answered(call, response)
        if response is not None:
            length: int
            if type(response) is bytes and self.quotas is None:
                length = len(response)
                self.outbox.write((response,), length)
            else:
                encode = dispatch.encode if self.quotas is None else self.quotas.encode
                parts, length = encode(call, response)
                self.outbox.write(parts, length)
            self._scheduler.spent += length >> call.api.cost_shift
        listener, context = self._listener, call.context
        metrics = listener.metrics
        seconds = elapsed_s() - began_s
        metrics.api(context.api_key).answered(context.api_version, seconds)
        if seconds > listener.slow_s:
            listener.log_slow(context, seconds)

    def mute(self, seconds: float) -> None:
        """Handle nothing more for so long. Answers that are due are sent."""
        from ottla.server.connections.muting import mute  # few clients are beyond a quota

        mute(self, seconds)

    def _advance(self) -> None:
        """Called when requests are no longer held back: handle what has arrived meanwhile, and receive again."""
        if self.closed:
            return
        if (self._head or self._end > self._start) and not self._blocked():
            if self._own is not None:
                assert self._own_view is not None
                self._consume(self._own, self._own_view, self._start, self._end)
            else:
                data = bytearray(self._head)
                self._head = b""
                self._consume(data, memoryview(data), 0, len(data))
        if self.closing and not self._pending and not self.outbox.queued:
            self.close()
        elif self._paused and not self._starved and not self._blocked() and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # Bytes that wait.

    def _keep(self, data: bytearray, view: memoryview, start: int, end: int, need: int) -> None:
        """Keep `data[start:end]`, the head of a frame of `need` bytes (or frames that must wait), for later."""
        rest = end - start
        own = self._own
        if rest == 0:
            self._start = self._end = 0
            if own is not None and not KEEP_BYTES_MIN <= len(own) <= self._listener.buffers.keep_bytes_max:
                self._drop_own()
            return
        is_blocked = self._blocked()
        head_bytes_max = RECEIVE_AHEAD_BYTES if is_blocked else HEAD_BYTES_MAX
        if rest <= head_bytes_max and (own is None or len(own) < KEEP_BYTES_MIN):
            head = bytes(data[start:end])
            if own is not None:
                self._drop_own()
            self._head = head
        else:
            keep(self, data, view, start, end, need, is_blocked)

    def _drop_own(self) -> None:
        if self._own is not None:
            self._listener.buffers.dropped(len(self._own) + self._growth)
            self._own = self._own_view = None
            self._start = self._end = self._growth = 0
            if self._lent is None:
                self._listener.buffers.over(self)
        self._head = b""

    def trim(self) -> None:
        """Give back an empty buffer of a connection that has been quiet."""
        if self._end == 0 and self._own is not None:
            self._drop_own()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    # Ends.

    def _end_by(self, error: Exception, slot: Slot | None = None) -> None:
        from ottla.server.connections.ends import end_by  # rare

        end_by(self, error, slot)

    @property
    def idle(self) -> bool:
        """Whether nothing is being handled or sent for this client."""
        return not self._pending and not self.outbox.queued

    def finish(self) -> None:
        """Begin no further request, and close once the begun ones are answered."""
        from ottla.server.connections.ends import finish  # once for a connection

        finish(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self.closing = True
            self._transport.abort()


class Connection(CompiledConnection, asyncio.BufferedProtocol):
    """The protocol that the event loop drives. One per client, made by `Listener`."""

    __slots__ = ()
