"""The sending half of a connection over TLS, for who writes past its transport (`ottla.network.Sender`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.filesystem import File
from ottla.model import Buffer
from ottla.network import Sender

if TYPE_CHECKING:
    import ssl

CHUNK_BYTES: Final = 65_536
"""Plain text that is encrypted before it is sent, so the cipher text that waits for a slow peer."""

TURN_BYTES_MAX: Final = 1 << 20
"""Bytes encrypted for one connection without a look at the others: half a millisecond of work."""


class Encrypting(Protocol):
    """The connection that encrypts: `TlsConnection`."""

    ready: bool
    """Whether the handshake is done."""
    outgoing: ssl.MemoryBIO
    """Cipher text."""

    def encrypt(self, data: Buffer, /) -> None: ...
    def drained(self) -> None: ...
    def is_closing(self) -> bool: ...
    def abort(self) -> None: ...


class TlsSender:
    """Implements `ottla.network.Sender`. What it has taken is encrypted; cipher text that the socket does not take now
    is kept, sent as soon as it can be, and nothing more is taken before."""

    def __init__(self, connection: Encrypting, raw: Sender) -> None:
        self._connection = connection
        self._outgoing = connection.outgoing
        self._raw: Sender | None = raw
        self._rest: Buffer = b""
        self._writable: Callable[[], None] | None = None
        self._watching = False

    @property
    def has_rest(self) -> bool:
        return len(self._rest) > 0

    def push(self) -> bool:
        """Send what is encrypted; returns whether the socket took all of it. Raises OSError."""
        raw, outgoing = self._raw, self._outgoing
        if raw is None:
            raise BrokenPipeError("the connection is closed")
        rest = self._rest
        if not len(rest):
            if not outgoing.pending:
                return True
            rest = outgoing.read()
        while True:
            try:
                sent = raw.send(rest)
            except BlockingIOError:
                sent = 0
            if sent < len(rest):
                self._rest = memoryview(rest)[sent:]
                self._watch_raw()
                return False
            self._rest = b""
            if not outgoing.pending:
                return True
            rest = outgoing.read()

    def send(self, data: Buffer, /) -> int:
        self._open()
        size = len(data)
        if size <= CHUNK_BYTES:
            self._connection.encrypt(data)
            self.push()
            return size
        return self._send_long(data)

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: Sequence[Any], flags: int, /) -> int:
        self._open()
        size = sum(map(len, buffers))
        if size <= CHUNK_BYTES:
            self._connection.encrypt(b"".join(buffers))
            if not flags:  # else more follows at once, in one piece with it
                self.push()
            return size
        taken = 0
        together: list[Buffer] = []
        length = 0
        for each in buffers:
            if length + len(each) <= CHUNK_BYTES:
                together.append(each)
                length += len(each)
                continue
            if together:
                self._connection.encrypt(b"".join(together))
                taken += length
                together, length = [], 0
                if not self.push():
                    return taken
            if len(each) <= CHUNK_BYTES:
                together, length = [each], len(each)
                continue
            sent = self._send_long(each)
            taken += sent
            if sent < len(each) or self.has_rest:
                return taken
        if together:
            self._connection.encrypt(b"".join(together))
            taken += length
            self.push()
        return taken

    def send_file(self, file: File, position: int, length: int) -> int:
        self._open()
        taken = 0
        end = min(length, TURN_BYTES_MAX)
        while taken < end:
            data = file.pread(min(CHUNK_BYTES, end - taken), position + taken)
            if not data:
                break
            self._connection.encrypt(data)
            taken += len(data)
            if not self.push():
                break
        return taken

    def _send_long(self, data: Buffer) -> int:
        view = memoryview(data)
        end = min(len(view), TURN_BYTES_MAX)
        taken = 0
        while taken < end:
            piece = view[taken : min(taken + CHUNK_BYTES, end)]
            self._connection.encrypt(piece)
            taken += len(piece)
            if not self.push():
                break
        return taken

    def _open(self) -> None:
        """Raises BlockingIOError while nothing can be taken, OSError when the connection is closed."""
        if self._raw is None or self._connection.is_closing():
            raise BrokenPipeError("the connection is closed")
        if not self._connection.ready or (len(self._rest) and not self.push()):
            raise BlockingIOError

    # Waiting for a peer.

    def watch(self, writable: Callable[[], None]) -> None:
        self._writable = writable
        if self._connection.ready:
            self._watch_raw()

    def unwatch(self) -> None:
        self._writable = None
        if not len(self._rest):
            self._unwatch_raw()

    def opened(self) -> None:
        """The handshake is done."""
        if self._writable is not None:
            self._watch_raw()

    def _watch_raw(self) -> None:
        if not self._watching and self._raw is not None:
            self._watching = True
            self._raw.watch(self._raw_writable)

    def _unwatch_raw(self) -> None:
        if self._watching and self._raw is not None:
            self._watching = False
            self._raw.unwatch()

    def _raw_writable(self) -> None:
        try:
            if not self.push():
                return
        except OSError:
            self._connection.abort()
            self._unwatch_raw()
            return
        if self._writable is not None and not self._connection.is_closing():
            self._writable()
        else:
            self._unwatch_raw()
            self._connection.drained()

    def release(self) -> None:
        """Done with; what was taken is still sent."""
        self._writable = None
        if self._raw is not None and not len(self._rest):
            self.lost()

    def lost(self) -> None:
        """The transport below is gone, or nothing more is sent."""
        raw, self._raw = self._raw, None
        self._rest = b""
        self._watching = False
        if raw is not None:
            raw.release()
