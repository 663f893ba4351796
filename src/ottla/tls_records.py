"""How much cipher text OpenSSL is given at once, and how much of it may be no data.

A read of OpenSSL goes on until there is data, whatever else comes before it. In TLS 1.3 that may be messages that
change keys: 27 bytes each, of which a client may send as many as it likes. One that asks for a new key of the other
side too takes 20 us, so 64 KB of them would hold the event loop for 50 ms and more. So it is given a few records, and
looked at in between (`Pieces`); and who goes on with such messages is sent away (`Noise`).
"""

from __future__ import annotations

from typing import Final

PIECE_RECORDS: Final = 32
"""A piece ends with this one at the latest: less than a millisecond of changes of keys."""

HEADER_BYTES: Final = 5

NOISE_MAX: Final = 64.0
"""Messages without data at once: a server sends two tickets, and with each 137 GB a Java client changes its key."""

NOISE_PER_SECOND: Final = 1.0


class Pieces:
    """Follows the records in a stream of cipher text."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the record under way that have not arrived."""
        self._head = b""
        """The first bytes of a record whose header has not wholly arrived."""

    def next(self, data: memoryview, position: int) -> int:
        """Where the piece ends that begins at `position`; what comes before was taken already."""
        size = len(data)
        at = position + self._left
        if self._head:
            head = self._head + bytes(data[position : position + HEADER_BYTES - len(self._head)])
            if len(head) < HEADER_BYTES:
                self._head = head
                return size
            at = position + HEADER_BYTES - len(self._head) + (head[3] << 8 | head[4])
            self._head = b""
        records = 0
        while at < size and records < PIECE_RECORDS:
            if size - at < HEADER_BYTES:
                self._head = bytes(data[at:])
                at = size
                break
            at += HEADER_BYTES + (data[at + 3] << 8 | data[at + 4])
            records += 1
        end = min(at, size)
        self._left = at - end
        return end

    @property
    def is_between(self) -> bool:
        """Whether all that was taken are whole records."""
        return not self._left and not self._head


class Noise:
    """Counts the messages of a connection that are no data. Belongs to the event loop's thread."""

    __slots__ = ("_left", "_since_s")

    def __init__(self) -> None:
        self._left = NOISE_MAX
        self._since_s = 0.0

    def is_too_much(self, messages: int, now_s: float) -> bool:
        self._left = min(NOISE_MAX, self._left + (now_s - self._since_s) * NOISE_PER_SECOND) - messages
        self._since_s = now_s
        return self._left < 0
