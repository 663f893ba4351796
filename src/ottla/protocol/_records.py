# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Loops over the records inside a batch: the only work that Ottla does per record.

This file is plain Python and runs as such; `_records.pxd` gives its functions C types, and with a C compiler at hand
the build makes a module of the same name out of both. Nothing here trusts a length: every read is checked against
`end` by hand, because the compiled code checks no bounds of its own. Numbers wrap as Java's do (int32 and int64).

A record (Kafka's DefaultRecord) is: length, attributes byte, timestamp delta, offset delta, key length, key, value
length, value, header count, and per header key length, key, value length, value. Lengths and deltas are zigzag varints.
"""

from __future__ import annotations

from typing import Any

# C globals when compiled: a literal of this size would be a Python object there.
_UINT32_MAX = 0xFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_INT64_MIN = -0x7FFFFFFFFFFFFFFF - 1

OK = 0
TRUNCATED = 1
"""The section ends before the declared number of records does."""
MALFORMED = 2
"""A record's fields do not fill the length that it declares, or a length or varint is impossible."""
LEFT_OVER = 3
"""Bytes follow the declared number of records."""
TIMESTAMP_OVERFLOW = 4
"""A base timestamp and delta whose sum is no int64."""


def _varint(data, position, end):
    """(value, position after it) of a zigzag varint of up to 5 bytes; the position is -1 where there is none."""
    raw = 0
    shift = 0
    while position < end:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _UINT32_MAX
            value = raw >> 1
            return (value if raw & 1 == 0 else -value - 1), position
        shift += 7
        if shift > 28:
            break
    return 0, -1


def _varlong(data, position, end):
    """(value, position after it) of a zigzag varint of up to 10 bytes; the position is -1 where there is none."""
    raw = 0
    shift = 0
    while position < end:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _UINT64_MAX
            value = raw >> 1
            return (value if raw & 1 == 0 else -value - 1), position
        shift += 7
        if shift > 63:
            break
    return 0, -1


def _skip_headers(data, position, end):
    """The position after a record's headers, -1 where they are malformed."""
    count, position = _varint(data, position, end)
    if position < 0 or count < 0 or count > end - position:
        return -1
    while count > 0:
        count -= 1
        length, position = _varint(data, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        length, position = _varint(data, position + length, end)
        if position < 0 or length > end - position:
            return -1
        if length > 0:
            position += length
    return position


def _append_varint(out, value):
    """Append a zigzag varint to a bytearray; the same for 32 and 64 bits."""
    raw = value << 1 if value >= 0 else (-(value + 1) << 1) | 1
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def scan(
    data: Any, position: int, end: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, int, int, int]:
    """Walk the `count` records in `data[position:end]` without building any.

    Returns (status, records seen, least timestamp, greatest timestamp, index of the greatest, index of the first record
    without a key, index of the first whose offset delta is not its index); an index is -1 where there is none. Records
    without a timestamp (-1) count for the greatest but not for the least. Unless the status is OK, `records seen` is
    the index of the record that is wrong.
    """
    seen = 0
    least = _INT64_MAX
    greatest = -1
    greatest_index = -1
    keyless = -1
    misplaced = -1
    while seen < count:
        if position >= end:
            return TRUNCATED, seen, least, greatest, greatest_index, keyless, misplaced
        length, position = _varint(data, position, end)
        if position < 0 or length < 0:
            return MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if length > end - position:
            return TRUNCATED, seen, least, greatest, greatest_index, keyless, misplaced
        stop = position + length
        delta, position = _varlong(data, position + 1, stop)
        if position < 0:
            return MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if base_timestamp > _INT64_MAX - delta if delta > 0 else base_timestamp < _INT64_MIN - delta:
            return TIMESTAMP_OVERFLOW, seen, least, greatest, greatest_index, keyless, misplaced
        timestamp = base_timestamp + delta
        if timestamp > greatest:
            greatest = timestamp
            greatest_index = seen
        if timestamp < least and timestamp != -1:
            least = timestamp
        offset_delta, position = _varint(data, position, stop)
        if position < 0:
            return MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if offset_delta != seen and misplaced < 0:
            misplaced = seen
        length, position = _varint(data, position, stop)
        if position < 0 or length > stop - position:
            return MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if length >= 0:
            position += length
        elif keyless < 0:
            keyless = seen
        length, position = _varint(data, position, stop)
        if position < 0 or length > stop - position:
            return MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if length > 0:
            position += length
        if stop - position != 1 or data[position] != 0:
            position = _skip_headers(data, position, stop)
            if position != stop:
                return MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        else:
            position = stop
        seen += 1
    return (
        OK if position == end else LEFT_OVER, seen, least, greatest, greatest_index, keyless, misplaced,
    )  # fmt: skip


def read(
    data: bytes, position: int, end: int, count: int, base_offset: int, base_timestamp: int, append_time: int
) -> list[Any]:
    """The records in the bytes `data[position:end]` as a list of (offset, timestamp, key, value, headers, attributes).

    `append_time` replaces every timestamp unless it is -1. Headers are (name, value or None) pairs. Raises ValueError
    where `scan` finds fault.
    """
    status, seen, _, _, _, _, _ = scan(data, position, end, count, base_timestamp)
    if status != OK:
        raise ValueError(problem(status, seen))
    view = data
    records = []
    while seen > 0:
        seen -= 1
        _, position = _varint(view, position, end)
        attributes = view[position]
        delta, position = _varlong(view, position + 1, end)
        offset_delta, position = _varint(view, position, end)
        key = None
        length, position = _varint(view, position, end)
        if length >= 0:
            key = data[position : position + length]
            position += length
        value = None
        length, position = _varint(view, position, end)
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers = ()
        header_count, position = _varint(view, position, end)
        if header_count > 0:
            pairs = []
            while header_count > 0:
                header_count -= 1
                length, position = _varint(view, position, end)
                name = data[position : position + length].decode("utf-8", "replace")
                position += length
                header_value = None
                length, position = _varint(view, position, end)
                if length >= 0:
                    header_value = data[position : position + length]
                    position += length
                pairs.append((name, header_value))
            headers = tuple(pairs)
        timestamp = base_timestamp + delta if append_time == -1 else append_time
        records.append((base_offset + offset_delta, timestamp, key, value, headers, attributes))
    return records


def write(out: bytearray, records: Any, base_timestamp: int) -> int:
    """Append `records`, (timestamp, key, value, headers) tuples, to the bytearray `out`.

    Returns the greatest timestamp.
    """
    greatest = -1
    offset_delta = 0
    for timestamp, key, value, headers in records:
        body = bytearray(1)
        _append_varint(body, timestamp - base_timestamp)
        _append_varint(body, offset_delta)
        if key is None:
            body.append(1)
        else:
            _append_varint(body, len(key))
            body += key
        if value is None:
            body.append(1)
        else:
            _append_varint(body, len(value))
            body += value
        if not headers:
            body.append(0)
        else:
            _append_varint(body, len(headers))
            for name, header_value in headers:
                encoded = name.encode("utf-8")
                _append_varint(body, len(encoded))
                body += encoded
                if header_value is None:
                    body.append(1)
                else:
                    _append_varint(body, len(header_value))
                    body += header_value
        _append_varint(out, len(body))
        out += body
        if timestamp > greatest:
            greatest = timestamp
        offset_delta += 1  # noqa: SIM113 - a C integer when compiled
    return greatest


def problem(status: int, seen: int) -> str:
    """A sentence for a status of `scan`."""
    if status == TRUNCATED:
        return f"the batch ends inside record {seen}, before its declared number of records"
    if status == LEFT_OVER:
        return f"bytes are left over after the declared {seen} records"
    if status == TIMESTAMP_OVERFLOW:
        return f"record {seen} has a timestamp that is no 64-bit number"
    return f"record {seen} is malformed"
