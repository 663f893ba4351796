"""Bytes and file slices on their way to one client, in order.

On a plain socket the outbox writes past the transport: `sendmsg` gathers small answers, `sendfile` moves record data
from segment to socket without touching it, and a dup'ed descriptor is watched when the peer reads slowly (a
transport's own descriptor cannot be). The transport only reads. Without a descriptor (TLS, simulated network) the
transport writes.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ottla.model import Buffer

GATHER_MAX = 512
"""Buffers in one sendmsg, half of the system's IOV_MAX."""

SENDFILE_BYTES_MAX = 1 << 30

Part = Any
"""A buffer, a Slice, or the SliceRest of one."""


class Outbox:
    """What waits to be sent on one socket. `queued` is its size in bytes."""

    __slots__ = ("_dup", "_held", "_loop", "_on_drained", "_on_error", "_queue", "_socket", "_watching", "queued")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_drained: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._socket: socket.socket | None = socket.socket(fileno=fd)
        self._on_drained = on_drained
        self._on_error = on_error
        self._queue: deque[Part] = deque()
        self._watching = False
        self._dup = -1
        self._held = 0
        self.queued = 0

    def hold(self) -> None:
        """Send nothing before `release`, which is called as often: an answer is queued that may still change."""
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        if not self._held and self._socket is not None:
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

    def flush(self) -> None:
        """Send what the socket takes now; the rest follows as it becomes writable."""
        queue = self._queue
        if not queue or self._socket is None or self._watching or self._held:
            return
        try:
            if len(queue) == 1 and type(queue[0]) is bytes:
                try:
                    sent = self._socket.send(queue[0])
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
        if self._socket is not None:
            if self._watching:
                self._loop.remove_writer(self._dup)
                self._watching = False
            if self._dup >= 0:
                os.close(self._dup)
                self._dup = -1
            self._socket.detach()
            self._socket = None
        self._queue.clear()
        self.queued = 0

    def _send(self) -> bool:
        """Send until nothing is left (True) or the socket is full (False)."""
        sock = self._socket
        assert sock is not None
        queue = self._queue
        try:
            while queue:
                gathered: list[Buffer] = []
                size = 0
                more = 0
                for part in queue:
                    if not isinstance(part, bytes | memoryview | bytearray):
                        more = socket.MSG_MORE
                        break
                    gathered.append(part)
                    size += len(part)
                    if len(gathered) == GATHER_MAX:
                        break
                if gathered:
                    sent = sock.sendmsg(gathered, (), more) if more or len(gathered) > 1 else sock.send(gathered[0])
                    self.queued -= sent
                    if sent < size:
                        self._drop(sent)
                        return False
                    for _ in gathered:
                        queue.popleft()
                else:
                    self._send_slice(sock.fileno(), queue[0])
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

    def _send_slice(self, fd: int, part: Any) -> None:
        """Send some of the slice at the head of the queue. Raises BlockingIOError when the socket takes nothing."""
        sent = os.sendfile(fd, part.file.fileno(), part.position, min(part.length, SENDFILE_BYTES_MAX))
        if sent == 0:
            raise OSError("the file ended before the end of the slice")
        self.queued -= sent
        if sent == part.length:
            self._queue.popleft()
        else:
            self._queue[0] = SliceRest(part, part.position + sent, part.length - sent)

    def _watch(self) -> None:
        if self._dup < 0:
            assert self._socket is not None
            self._dup = os.dup(self._socket.fileno())
        self._loop.add_writer(self._dup, self._writable)
        self._watching = True

    def _writable(self) -> None:
        try:
            if not self._held and not self._send():
                return
        except OSError as error:
            self._on_error(error)
            return
        self._loop.remove_writer(self._dup)
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
