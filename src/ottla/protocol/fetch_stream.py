"""A Fetch response that is decoded while it arrives: each partition is handed over as soon as its records are there,
one of many batches in pieces.

So a replica that catches up appends what has come while its leader sends the rest, and a response of megabytes takes
the memory of one piece, the same for each: what was received is still in the processor's caches when it is checked and
written. Versions with topic ids only.

    stream = FetchStream(version, take)
    stream.begin(size)
    while not stream.is_over:
        if stream.is_busy:
            stream.take(0)
        else:
            stream.take(sock.recv_into(stream.room()))
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID

from ottla.protocol.fetch import FetchedPartition, FetchResponse
from ottla.protocol.fetch_responses import (
    read_partition,
    read_partition_start,
    read_response_end,
    read_response_start,
)
from ottla.protocol.messages import MalformedRequest
from ottla.protocol.records.record_batch import LOG_OVERHEAD
from ottla.protocol.varint import padded_uvarint, read_length
from ottla.protocol.wire import INT32, end_of_tags, read_uuid

BUFFER_BYTES_MIN = 65_536
READ_AHEAD_BYTES = 16_384
"""What is received at most beyond a partition's end: it is moved to the front of the buffer."""
PIECE_BYTES = 262_144
"""Bytes of one partition's batches that are handed over before the rest has arrived, if the rest is at least as
large."""
KEEP_BYTES_MAX = 2 << 20
"""A larger buffer, of a partition that gave more than was asked for, is not kept for the next."""

COST_AT_ONCE = 1000
"""A slice of the event loop's time, in the units of `drivers/cooperative.py`."""
ROW_COST = 20

_FIXED_BYTES = struct.calcsize(">ihqqq")
"""Bytes of a partition before its aborted transactions."""
_NONE = (0, 1)
"""Lengths of an array that is null or empty, as they are written."""

Take = Callable[[UUID, FetchedPartition], int]
"""What to do with a partition, whose records are valid during the call only; gives its cost beside ROW_COST. Called
several times for one that comes in pieces, each with the batches that follow."""


class FetchStream:
    """One buffer for as many responses as are begun, one after the other."""

    __slots__ = (
        "_at", "_end", "_left", "_need", "_rows", "_take", "_topic_id", "_topics", "_version", "_view",
        "is_busy", "is_over", "response",
    )  # fmt: skip

    def __init__(self, version: int, take: Take) -> None:
        self._version = version
        self._take = take
        self._view = memoryview(b"")
        self.begin(0)

    def begin(self, size: int) -> None:
        """A frame of `size` bytes is next, its length not included."""
        self.response = FetchResponse([])
        """Without its partitions."""
        self.is_over = False
        self.is_busy = False
        """Whether there is more to do with what has arrived already: `take(0)` does it."""
        self._left = size
        """Bytes that have not been received."""
        self._at = self._end = 0
        """Bounds of received, undecoded bytes. Invariant: _at <= _end <= len(_view)."""
        self._need = 0
        """Position in the buffer up to which data must be received for the next step."""
        self._topics = -1
        """How many are to come; negative before the response has said so."""
        self._rows = -1
        """Rows left of the current topic; negative between topics."""
        self._topic_id = UUID(int=0)

    def room(self) -> memoryview:
        """Where the next bytes are to go; never empty while the response is not over, nor beyond its end."""
        if self._at == self._end:
            self._need -= self._at
            self._at = self._end = 0
        stop = min(max(self._need, self._end) + READ_AHEAD_BYTES, self._end + self._left)
        if stop > len(self._view):
            before = self._end
            self._make_room(stop - self._at)
            stop -= before - self._end
        return self._view[self._end : stop]

    def _make_room(self, size: int) -> None:
        rest = self._end - self._at
        view = self._view
        if size > len(view):
            view = memoryview(bytearray(-(-size // BUFFER_BYTES_MIN) * BUFFER_BYTES_MIN))
        view[:rest] = self._view[self._at : self._end]
        self._view = view
        self._need -= self._at
        self._at, self._end = 0, rest

    def trim(self) -> None:
        """Give the buffer back, between two responses."""
        self._view = memoryview(b"")

    def take(self, count: int) -> None:
        """Decode what is whole now that `count` more bytes are in the buffer. Raises MalformedRequest, and what the
        caller's function raises."""
        self._end += count
        self._left -= count
        self.is_busy = False
        spent = 0
        while not self.is_over and (self._end >= self._need or not self._left):
            if spent >= COST_AT_ONCE:
                self.is_busy = True
                return
            try:
                if self._rows > 0:
                    start, end = records_bounds(self._view[: self._end], self._at)
                    self._need = end + 1
                    if self._need > self._end and self._left:
                        whole = self._whole_batches(start, end)
                        if not whole:
                            return
                        spent += ROW_COST + self._take_piece(start, whole, end)
                        continue
                row = self._step()
            except (struct.error, IndexError, MalformedRequest) as error:
                if not self._left:
                    raise MalformedRequest(f"truncated or garbled: {error}") from error
                # Nothing says how long this is: it is tried again when twice as much is there.
                self._need = 2 * self._end - self._at + 1
                return
            if row is not None:
                spent += ROW_COST + self._take(self._topic_id, row)

    def _whole_batches(self, start: int, end: int) -> int:
        """Where the batches end that can be handed over now, of records from `start` to `end`; 0 for later."""
        if end - self._end < PIECE_BYTES:
            return 0
        if self._end - start < PIECE_BYTES:
            self._need = start + PIECE_BYTES
            return 0
        view, position, received = self._view, start, self._end
        while received - position >= LOG_OVERHEAD:
            (size,) = INT32.unpack_from(view, position + 8)
            if size < 0 or received - position < LOG_OVERHEAD + size:
                break
            position += LOG_OVERHEAD + size
        if position > start:
            return position
        if size > 0:
            self._need = min(start + LOG_OVERHEAD + size, end + 1)
        return 0

    def _take_piece(self, start: int, whole: int, end: int) -> int:
        """Hand over the records up to `whole`, and leave the rest as a partition that has fewer."""
        view, at = self._view, self._at
        piece = read_partition_start(self._version, view, at)
        piece.records = view[start:whole]
        cost = self._take(self._topic_id, piece)
        head = bytes(view[at:start])
        fixed = head[: _FIXED_BYTES + 5]
        self._at = whole - len(head)
        view[self._at : whole] = fixed + padded_uvarint(end - whole + 1, len(head) - len(fixed))
        self._need = 0
        return int(cost)

    def _step(self) -> FetchedPartition | None:
        """Decode the next part; gives a partition if it was one. Raises IndexError, struct.error or MalformedRequest
        where it is not whole."""
        view, at = self._view[: self._end], self._at
        row = None
        if self._rows > 0:
            row, at = read_partition(self._version, view, at)
            self._rows -= 1
        elif self._rows == 0:
            at = end_of_tags(view, at)
            self._rows = -1
        elif self._topics < 0:
            at = read_response_start(self._version, view, at, self.response)
            self._topics, at = read_length(view, at)
            self._topics = max(self._topics, 0)
        elif self._topics:
            self._topic_id, at = read_uuid(view, at)
            self._rows, at = read_length(view, at)
            self._rows = max(self._rows, 0)
            self._topics -= 1
        elif not self._left:
            read_response_end(self._version, view, at, self.response)
            self.is_over = True
            if len(self._view) > KEEP_BYTES_MAX:
                self.trim()
            return None
        else:
            raise IndexError("the response is longer than its frame")
        self._at = at
        self._need = 0
        return row


def records_bounds(frame: memoryview, position: int) -> tuple[int, int]:
    """Where the records of the partition at `position` start and end. Raises IndexError, struct.error."""
    position += _FIXED_BYTES
    if frame[position] not in _NONE:
        return position, position  # aborted transactions, which no replica is told of
    length, position = read_length(frame, position + 5)
    return position, position + max(length, 0)
