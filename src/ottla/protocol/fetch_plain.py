# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Fetch as it nearly always is: short requests without tagged fields but that of replicas, answers of nothing but
records and watermarks.

`fetch.py` knows all other requests, and says what is wrong with one; `fetch_responses.py` all other answers.

Compiled, with C types in `fetch_plain.pxd`. Nothing here trusts a length: every read is checked against `end` by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.model import ZERO_UUID, Buffer, Offset
from ottla.protocol.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    Records,
)
from ottla.protocol.wire import uuid_of

PLAIN_ROWS_MAX = 200
"""Partitions of a request, topics, or partitions of a forgotten topic: some microseconds for all."""
PLAIN_NAME_MAX = 1000
"""Bytes of a name."""

# C globals when compiled.
_ROWS_MAX = PLAIN_ROWS_MAX
_NAME_MAX = PLAIN_NAME_MAX
_TWO_31 = 1 << 31
_TWO_32 = 1 << 32
_new = tuple.__new__


def decode_plain(version: int, frame: Buffer, position: int) -> FetchRequest | None:
    """The request whose body starts at `position`, None for one that is not plain, or not right."""
    if cython.compiled:
        whole = frame if type(frame) is memoryview else memoryview(frame)
        data = cython.cast("const unsigned char *", PyMemoryView_GET_BUFFER(whole).buf)  # type: ignore[name-defined] # noqa: F821
        return _decode(version, data, position, len(whole))
    else:
        return _decode(version, frame, position, len(frame))


def _decode(version: int, data: Any, position: int, end: int) -> FetchRequest | None:
    """Every read of `data` is checked against `end` here."""
    flexible = version >= 12
    fixed = 13 + (4 if version < 15 else 0) + (8 if version >= 7 else 0)
    if end - position < fixed:
        return None
    request = FetchRequest(0, 0, 0, [])
    if version < 15:
        request.replica_id = _int32(data, position)
        position += 4
    request.max_wait_ms = _int32(data, position)
    request.min_bytes = _int32(data, position + 4)
    request.max_bytes = _int32(data, position + 8)
    level = data[position + 12]
    request.isolation_level = level if level < 128 else level - 256
    position += 13
    if version >= 7:
        request.session_id = _int32(data, position)
        request.session_epoch = _int32(data, position + 4)
        position += 8
    count, position = _count(data, position, end, flexible)
    if count < 0 or count > _ROWS_MAX:
        return None
    topics = request.topics
    left = _ROWS_MAX
    for _ in range(count):
        name, topic_id, position = _plain_topic_key(version, data, position, end)
        if position < 0:
            return None
        rows, position = _count(data, position, end, flexible)
        left -= rows
        if rows < 0 or left < 0:
            return None
        partitions: list[FetchPartition] = []
        position = _plain_rows(version, data, position, end, rows, partitions)
        if position < 0:
            return None
        topics.append(FetchTopic(name, topic_id, partitions))
    position = _plain_end(version, data, position, end, request)
    return request if position >= 0 else None


def _plain_rows(version: int, data: Any, position: int, end: int, count: int, into: list[FetchPartition]) -> int:
    """Partitions and the end of their topic; returns the position behind, -1 for none."""
    flexible = version >= 12
    size = 16 + (4 if version >= 9 else 0) + (5 if flexible else 0) + (8 if version >= 5 else 0)
    if end - position < size * count + flexible:
        return -1
    epoch = last_epoch = start_offset = -1
    for _ in range(count):
        number = _int32(data, position)
        position += 4
        if version >= 9:
            epoch = _int32(data, position)
            position += 4
        offset = _int64(data, position)
        position += 8
        if flexible:
            last_epoch = _int32(data, position)
            position += 4
        if version >= 5:
            start_offset = _int64(data, position)
            position += 8
        bytes_max = _int32(data, position)
        position += 4
        if flexible:
            if data[position]:
                return -1
            position += 1
        row = (number, offset, bytes_max, epoch, last_epoch, start_offset, ZERO_UUID, UNKNOWN_HIGH_WATERMARK)
        into.append(_new(FetchPartition, row))
    if flexible:
        if data[position]:
            return -1
        position += 1
    return position


def _plain_end(version: int, data: Any, position: int, end: int, request: FetchRequest) -> int:
    """Forgotten topics, rack, and no tagged field but who the replica is; returns the position behind, -1 for none."""
    flexible = version >= 12
    if version >= 7:
        count, position = _count(data, position, end, flexible)
        if count < 0 or count > _ROWS_MAX:
            return -1
        forgotten = []
        for _ in range(count):
            name, topic_id, position = _plain_topic_key(version, data, position, end)
            if position < 0:
                return -1
            rows, position = _count(data, position, end, flexible)
            if rows < 0 or rows > _ROWS_MAX or end - position < 4 * rows + flexible:
                return -1
            numbers = [_int32(data, position + 4 * row) for row in range(rows)]
            position += 4 * rows
            if flexible:
                if data[position]:
                    return -1
                position += 1
            forgotten.append(ForgottenTopic(name, topic_id, numbers))
        request.forgotten_topics = forgotten
    if version >= 11:
        length, position = _name_length(data, position, end, flexible)
        if length < 0:
            return -1
        if length:
            request.rack_id = bytes(data[position : position + length]).decode("utf-8", "replace")
            position += length
    if not flexible or (position < end and data[position] == 0):
        return position
    if version < 15 or end - position < 16 or data[position + 15]:
        return -1
    if data[position] != 1 or data[position + 1] != 1 or data[position + 2] != 13:
        return -1
    request.replica_id = _int32(data, position + 3)
    request.replica_epoch = _int64(data, position + 7)
    return position + 16


def _plain_topic_key(version: int, data: Any, position: int, end: int) -> tuple[str | None, UUID | None, int]:
    """(name or None, topic id or None, position behind); -1 for a position says that there is none."""
    if version >= 13:
        if end - position < 16:
            return None, None, -1
        return None, uuid_of(bytes(data[position : position + 16])), position + 16
    length, position = _name_length(data, position, end, version >= 12)
    if length < 0:
        return None, None, -1
    return bytes(data[position : position + length]).decode("utf-8", "replace"), None, position + length


def _name_length(data: Any, position: int, end: int, flexible: bool) -> tuple[int, int]:
    """(bytes of a string, where it begins); -1 for null, one that does not fit, and an unusually long one."""
    if flexible:
        length, position = _count(data, position, end, True)
    elif end - position < 2:
        return -1, position
    else:
        length = data[position] << 8 | data[position + 1]
        position += 2
    return (length if length <= _NAME_MAX and length <= end - position else -1), position


def _count(data: Any, position: int, end: int, flexible: bool) -> tuple[int, int]:
    """(items, position behind); negative for null, a truncated one, and a varint of more than two bytes."""
    if not flexible:
        if end - position < 4:
            return -1, position
        return _int32(data, position), position + 4
    if position >= end:
        return -1, position
    byte = data[position]
    if byte < 0x80:
        return byte - 1, position + 1
    if end - position < 2 or data[position + 1] >= 0x80:
        return -1, position
    return (byte & 0x7F | data[position + 1] << 7) - 1, position + 2


def _int32(data: Any, position: int) -> int:
    value: int = data[position]
    value = value << 8 | data[position + 1]
    value = value << 8 | data[position + 2]
    value = value << 8 | data[position + 3]
    return value - _TWO_32 if value >= _TWO_31 else value


def _int64(data: Any, position: int) -> int:
    high = _int32(data, position)
    low = _int32(data, position + 4)
    return high * _TWO_32 + (low if low >= 0 else low + _TWO_32)


PIECE_BYTES = 256
"""What is written before, between or after records of one answer nearly always fits into this."""
ROW_BYTES_MAX = 64
"""The fields of a partition but its records, and all of the start of an answer."""
_PIECE_BYTES = PIECE_BYTES
_ROW_BYTES_MAX = ROW_BYTES_MAX


_END = bytes(3)
"""No tagged fields of the last partition, of its topic, of the answer."""


class Row:
    """A partition in a response."""

    __slots__ = ("high_watermark", "last_stable_offset", "log_start_offset", "records")

    def __init__(self) -> None:
        self.high_watermark: Offset = -1
        self.last_stable_offset: Offset = -1
        self.log_start_offset: Offset = -1
        self.records: Any = None
        """Has a length; None for none."""


def encode_plain(
    version: int, correlation_id: int, session_id: int, rows: Sequence[tuple[tuple[Any, int], Row]]
) -> tuple[list[Records], int]:
    """The parts of a response frame as `fetch_responses.encode_response` gives them, and their size.

    `rows` are ((topic name or id, partition), what there is), without errors, aborted transactions and hints.
    """
    flexible = version >= 12
    parts: list[Records] = []
    size = 0
    out = bytearray(_PIECE_BYTES)
    _put_int32(out, 0, correlation_id)
    at = 9 if flexible else 8  # no tagged fields, not throttled
    if version >= 7:
        _put_int32(out, at + 2, session_id)  # after no error
        at += 6
    count = len(rows)
    at = _put_length(out, at, _topics_of(rows, count), flexible)
    left = 0
    for number in range(count):
        key, row = rows[number]
        name, partition = key
        if not left:
            left = _same_topic(rows, number, count)
            by_name = isinstance(name, str)
            data = name.encode() if by_name else name.bytes
            _make_room(out, at, len(data) + 2 * _ROW_BYTES_MAX)
            if by_name:
                at = _put_length(out, at, len(data), True) if flexible else _put_int16(out, at, len(data))
            at = _put_bytes(out, at, data)
            at = _put_length(out, at, left, flexible)
        else:
            _make_room(out, at, _ROW_BYTES_MAX)
        left -= 1
        records = row.records
        length = 0 if records is None else len(records)
        at = _put_row(out, at, version, partition, row.high_watermark, row.last_stable_offset, row.log_start_offset)
        at = _put_length(out, at, length, flexible)
        if length:
            _cut(out, at)
            parts.append(out)
            parts.append(records)
            size += at + length
            if number == count - 1:
                if flexible:
                    parts.append(_END)
                    size += len(_END)
                return parts, size
            out = bytearray(_PIECE_BYTES)
            at = 0
        if flexible:  # no tagged fields of the partition, nor of the topic
            at += 1 if left else 2
    if flexible:
        at += 1
    if at:
        _cut(out, at)
        parts.append(out)
        size += at
    return parts, size


def _topics_of(rows: Any, count: int) -> int:
    """How often the topic changes."""
    found = at = 0
    while at < count:
        at += _same_topic(rows, at, count)
        found += 1
    return found


def _same_topic(rows: Any, start: int, count: int) -> int:
    """How many rows from `start` on are of one topic."""
    name = rows[start][0][0]
    at = start + 1
    while at < count:
        other = rows[at][0][0]
        if other is not name and other != name:
            break
        at += 1
    return at - start


def _put_row(out: bytearray, at: int, version: int, partition: int, high: int, stable: int, start: int) -> int:
    """Write the fields before the records: no error, no aborted transactions, no preferred replica. Returns the end."""
    _put_int32(out, at, partition)
    at = _put_int64(out, at + 6, high)
    at = _put_int64(out, at, stable)
    if version >= 5:
        at = _put_int64(out, at, start)
    at = at + 1 if version >= 12 else _put_int32(out, at, -1)
    return _put_int32(out, at, -1) if version >= 11 else at


def _make_room(out: bytearray, at: int, size: int) -> None:
    """Have so many bytes behind `at`, zeros all."""
    if len(out) - at < size:
        out.extend(bytes(len(out) + size))


def _cut(out: bytearray, at: int) -> None:
    if cython.compiled:
        PyByteArray_Resize(out, at)  # type: ignore[name-defined] # noqa: F821
    else:
        del out[at:]


def _put_bytes(out: bytearray, at: int, data: bytes) -> int:
    for number in range(len(data)):
        out[at + number] = data[number]
    return at + len(data)


def _put_length(out: bytearray, at: int, length: int, flexible: bool) -> int:
    """Write the length of an array or of bytes."""
    if not flexible:
        return _put_int32(out, at, length)
    length += 1
    while length > 0x7F:
        out[at] = length & 0x7F | 0x80
        length >>= 7
        at += 1
    out[at] = length
    return at + 1


def _put_int16(out: bytearray, at: int, value: int) -> int:
    out[at] = value >> 8 & 0xFF
    out[at + 1] = value & 0xFF
    return at + 2


def _put_int32(out: bytearray, at: int, value: int) -> int:
    _put_int16(out, at, value >> 16)
    return _put_int16(out, at + 2, value)


def _put_int64(out: bytearray, at: int, value: int) -> int:
    _put_int32(out, at, value >> 32)
    return _put_int32(out, at + 4, value)
