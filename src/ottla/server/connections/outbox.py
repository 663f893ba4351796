"""Bytes and file slices on their way to one client, in order.

The outbox writes past the transport, which only reads, through a `Sender` (`ottla.network`): `sendmsg` gathers small
answers, `send_file` moves record data from segment to socket without touching it, where the file has a descriptor.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.model import Buffer
from ottla.network import MORE, Sender

if TYPE_CHECKING:
    from ottla.replication.replica_log import Slice

GATHER_MAX = 512
"""Buffers in one sendmsg, half of the system's IOV_MAX."""

Part = Any
"""A buffer, a Slice, or the SliceRest of one."""


_BUFFERS = (bytes, bytearray, memoryview)
_INT32 = struct.Struct(">i")


class EncodedResponse:
    """A response that is already bytes, with file slices between them, from the response header on.

    The connection adds the length. Parts are buffers and `Slice`s; `length` is that of all parts in bytes, where
    known. A slice keeps its file open until it was sent.
    """

    __slots__ = ("length", "parts")

    def __init__(self, parts: Sequence[Any], length: int = -1) -> None:
        self.parts = parts
        self.length = sum(map(length_of, parts)) if length < 0 else length


def length_of(part: Buffer | Slice) -> int:
    return len(part) if isinstance(part, _BUFFERS) else part.length


def _nobody(*_: Any) -> None:
    """Is told instead of a connection that is gone."""


class Outbox:
    """Data waiting to be sent on one socket. `queued` is its size in bytes."""

    __slots__ = ("_held", "_loop", "_on_drained", "_on_error", "_queue", "_sender", "_watching", "queued")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sender: Sender,
        on_drained: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._sender: Sender | None = sender
        self._on_drained = on_drained
        self._on_error = on_error
        self._queue: deque[Part] = deque()
        self._watching = False
        self._held = 0
        self.queued = 0

    def hold(self) -> None:
        """Send nothing before `release`, which is called as often: an answer is queued that may still change."""
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        if not self._held and self._sender is not None:
            self.flush()
            self._loop.call_soon(self._on_drained)

    def undo_write(self, part: Buffer) -> None:
        """Remove the answer that was written last, and is held."""
        taken = self._queue.pop()
        assert taken is part
        self.queued -= len(part)
        self._held -= 1

    def write(self, parts: Sequence[Part], length: int) -> None:
        """Queue one response of `length` bytes; nothing is sent before `flush`."""
        self._queue.extend(parts)
        self.queued += length

    def write_frame(self, response: EncodedResponse) -> int:
        """Queue a response with its length before it; returns that."""
        length = response.length
        self._queue.append(_INT32.pack(length))
        self._queue.extend(response.parts)
        self.queued += length + 4
        return length

    def flush(self) -> None:
        """Send what the socket takes now; the rest follows as it becomes writable."""
        queue = self._queue
        if not queue or self._sender is None or self._watching or self._held:
            return
        try:
            if len(queue) == 1 and type(queue[0]) is bytes:
                try:
                    sent = self._sender.send(queue[0])
                except BlockingIOError:
                    sent = 0
                if sent == self.queued:
                    queue.clear()
                    self.queued = 0
                    return
                self.queued -= sent
                self._drop(sent)
                self._watch()
            elif not self._send():
                self._watch()
        except OSError as error:
            self._on_error(error)

    def close(self) -> None:
        """Drop what was not sent. The transport closes the descriptor itself."""
        if self._sender is not None:
            self._watching = False
            self._sender.release()
            self._sender = None
        self._queue.clear()
        self.queued = 0
        self._on_drained = self._on_error = _nobody  # the connection has this outbox: neither would be freed at once

    def _send(self) -> bool:
        """Send until nothing is left (True) or the socket is full (False)."""
        sender = self._sender
        assert sender is not None
        queue = self._queue
        try:
            while queue:
                gathered: list[Buffer] = []
                size = 0
                more = 0
                for part in queue:
                    if type(part) is not bytes and not isinstance(part, _BUFFERS):
                        more = MORE
                        break
                    gathered.append(part)
                    size += len(part)
                    if len(gathered) == GATHER_MAX:
                        break
                if gathered:
                    sent = sender.sendmsg(gathered, (), more) if more or len(gathered) > 1 else sender.send(gathered[0])
                    self.queued -= sent
                    if sent < size:
                        self._drop(sent)
                        return False
                    if len(gathered) == len(queue):
                        queue.clear()
                    else:
                        for _ in gathered:
                            queue.popleft()
                elif not self._send_slice(sender, queue[0]):
                    return False
        except BlockingIOError:
            return False
        return True

    def _drop(self, sent: int) -> None:
        """Take `sent` bytes of buffers off the head of the queue."""
        queue = self._queue
        while sent:
            head: Any = queue[0]
            if sent < len(head):
                queue[0] = memoryview(head)[sent:]
                return
            sent -= len(head)
            queue.popleft()

    def _send_slice(self, sender: Sender, part: Any) -> bool:
        """Send the slice at the head of the queue; returns whether all of it was taken, otherwise the socket is full.

        Raises BlockingIOError when the socket takes nothing.
        """
        sent = sender.send_file(part.file, part.position, part.length)
        if sent == 0:
            raise OSError("the file ended before the end of the slice")
        self.queued -= sent
        if sent == part.length:
            self._queue.popleft()
            return True
        self._queue[0] = SliceRest(part, part.position + sent, part.length - sent)
        return False

    def _watch(self) -> None:
        assert self._sender is not None
        self._sender.watch(self._writable)
        self._watching = True

    def _writable(self) -> None:
        try:
            if not self._held and not self._send():
                return
        except OSError as error:
            self._on_error(error)
            return
        assert self._sender is not None
        self._sender.unwatch()
        self._watching = False
        if not self._held:
            self._on_drained()


class SliceRest:
    """The unsent rest of a slice; holds on to the slice, and so to its open file."""

    __slots__ = ("_slice", "file", "length", "position")

    def __init__(self, whole: Any, position: int, length: int) -> None:
        self._slice = whole
        self.file = whole.file
        self.position = position
        self.length = length
