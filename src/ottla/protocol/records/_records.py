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

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

# C globals when compiled: a literal of this size would be a Python object there.
_UINT32_MAX = 0xFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_INT64_MIN = -0x7FFFFFFFFFFFFFFF - 1

_PLAIN_HEAD_BYTES = 8
"""Bytes of a plain record before its key."""

_PLAIN_RECORDS_MAX = 0x2000
"""The records of a batch whose numbers take at most two bytes."""

_DELTA_BYTE_MAX = 65
"""More than a timestamp delta of one byte, in either direction."""

OK = 0
TRUNCATED = 1
"""The section ends before the declared number of records does."""
MALFORMED = 2
"""A record's fields do not fill the length that it declares, or a length or varint is impossible."""
LEFT_OVER = 3
"""Bytes follow the declared number of records."""
TIMESTAMP_OVERFLOW = 4
"""A base timestamp and delta whose sum is no int64."""

OVERSIZED = 5
"""A record of more bytes than are allowed."""

_VARINT_BYTES_MAX = 5
_RECORD_BODY_MIN = 6
"""Bytes of a record without key, value and headers, behind its length."""

# The same as C globals.
_OK = OK
_OVERSIZED = OVERSIZED
_TRUNCATED = TRUNCATED
_MALFORMED = MALFORMED
_LEFT_OVER = LEFT_OVER
_TIMESTAMP_OVERFLOW = TIMESTAMP_OVERFLOW


def _varint(data, position, end):
    """(value, position after it) of a zigzag varint of up to 5 bytes; the position is -1 where there is none."""
    if end - position > 1:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        following = data[position + 1]
        if following < 0x80:
            byte = (byte & 0x7F) | (following << 7)
            return (byte >> 1) ^ -(byte & 1), position + 2
    return _long_varint(data, position, end)


def _long_varint(data, position, end):
    """The same without a look at what most varints are."""
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
    if position < end:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
    return _long_varlong(data, position, end)


def _long_varlong(data, position, end):
    """The same without a look at what most deltas are."""
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
    base = cython.address(data[0]) if cython.compiled else data
    return _scan(base, position, end, count, base_timestamp)


def measure(data: Any, position: int, end: int, seen: int, count: int, limit: int) -> tuple[int, int, int]:
    """Walk the lengths of records from number `seen` on, as far as `data[position:end]` has them.

    Returns (status, position of the next record, its number): OK, MALFORMED where a record or a number of records is
    impossible, OVERSIZED where one has more than `limit` bytes. The position may lie behind `end`. Of what a varint is
    cut off nothing is said: more of the data may follow.
    """
    base = cython.address(data[0]) if cython.compiled else data
    return _measure(base, position, end, seen, count, limit)


def _measure(data, position, end, seen, count, limit):
    while position < end:
        length, after = _varint(data, position, end)
        if after < 0:
            return (_OK if end - position < _VARINT_BYTES_MAX else _MALFORMED), position, seen
        if seen >= count or length < _RECORD_BODY_MIN:
            return _MALFORMED, position, seen
        if length > limit:
            return _OVERSIZED, position, seen
        position = after + length
        seen += 1
    return _OK, position, seen


def scan_unlocked(
    data: Any, position: int, end: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, int, int, int]:
    """`scan` without the interpreter's lock, for a thread: so many records would keep the event loop waiting."""
    base = cython.address(data[0]) if cython.compiled else data
    with cython.nogil:
        status, seen, least, greatest, index, keyless, misplaced = _scan(base, position, end, count, base_timestamp)
    return status, seen, least, greatest, index, keyless, misplaced


def _scan(data, position, end, count, base_timestamp):
    seen = 0
    least = _INT64_MAX
    greatest = -1
    greatest_index = -1
    keyless = -1
    misplaced = -1
    is_usual = _DELTA_BYTE_MAX < base_timestamp < _INT64_MAX - _DELTA_BYTE_MAX
    while seen < count:
        if is_usual:
            position, following, low, high, index, number = _skip_plain(data, position, end, seen, count)
            if following > seen:
                if base_timestamp + high > greatest:
                    greatest = base_timestamp + high
                    greatest_index = index
                if base_timestamp + low < least:
                    least = base_timestamp + low
                if keyless < 0:
                    keyless = number
                seen = following
                if seen == count:
                    break
        position, delta, number, keyed = _record(data, position, end)
        if position < 0:
            return -position, seen, least, greatest, greatest_index, keyless, misplaced
        if base_timestamp > _INT64_MAX - delta if delta > 0 else base_timestamp < _INT64_MIN - delta:
            return _TIMESTAMP_OVERFLOW, seen, least, greatest, greatest_index, keyless, misplaced
        if number != seen and misplaced < 0:
            misplaced = seen
        timestamp = base_timestamp + delta
        if timestamp > greatest:
            greatest = timestamp
            greatest_index = seen
        if timestamp < least and timestamp != -1:
            least = timestamp
        if keyless < 0 and not keyed:
            keyless = seen
        seen += 1
    return (
        _OK if position == end else _LEFT_OVER,
        seen,
        least,
        greatest,
        greatest_index,
        keyless,
        misplaced,
    )


def _skip_plain(data, position, end, seen, count):
    """Walk records from number `seen` on, below `count`, as long as they are what nearly every record is: with its
    number as offset delta, a timestamp delta and a key length of one byte, lengths of at most two, and no headers.

    Returns (position after them, number of the next one, least and greatest timestamp delta, index of the greatest,
    index of the first one without a key or -1). A large batch is as dear as this loop: few variables, few branches.
    """
    low = _DELTA_BYTE_MAX
    high = -_DELTA_BYTE_MAX
    high_index = -1
    keyless = -1
    known = -1
    numbered = seen << 1
    limit = (count if count < _PLAIN_RECORDS_MAX else _PLAIN_RECORDS_MAX) << 1
    last = end - _PLAIN_HEAD_BYTES
    while numbered < limit and position < last:
        at = position + 1
        length = data[position]
        if length >= 0x80:
            more = data[at]
            length += (more << 7) - 0x80
            at += 1
        stop = at + (length >> 1)
        delta = data[at + 1]
        number = data[at + 2]
        key = data[at + 3]
        at += 4
        if number >= 0x80:
            number += (key << 7) - 0x80
            key = data[at]
            at += 1
        if number != numbered or length & ~0x3FFE or stop > end:
            break
        if delta != known:
            if delta & 0x80:
                break
            known = delta
            delta = (delta >> 1) ^ -(delta & 1)
            if delta > high:
                high = delta
                high_index = numbered >> 1
            if delta < low:
                low = delta
        if key != 1:
            if key & 0x81:
                break
            at += key >> 1
        elif keyless < 0:
            keyless = numbered >> 1
        if stop - at < 2:
            break
        value = data[at]
        at += 1
        if value >= 0x80:
            more = data[at]
            value += (more << 7) - 0x80
            at += 1
        if value != (stop - at - 1) << 1 and (value != 1 or stop - at != 1):
            break
        if data[stop - 1]:
            break
        position = stop
        numbered += 2
    return position, numbered >> 1, low, high, high_index, keyless


def _record(data, position, end):
    """(position after a record or minus the status, timestamp delta, offset delta, whether it has a key)."""
    if position >= end:
        return -_TRUNCATED, 0, 0, False
    length, position = _varint(data, position, end)
    if position < 0 or length < 0:
        return -_MALFORMED, 0, 0, False
    if length > end - position:
        return -_TRUNCATED, 0, 0, False
    stop = position + length
    delta, position = _varlong(data, position + 1, stop)
    if position < 0:
        return -_MALFORMED, 0, 0, False
    offset_delta, position = _varint(data, position, stop)
    if position < 0:
        return -_MALFORMED, 0, 0, False
    length, position = _varint(data, position, stop)
    if position < 0 or length > stop - position:
        return -_MALFORMED, 0, 0, False
    keyed = length >= 0
    if keyed:
        position += length
    length, position = _varint(data, position, stop)
    if position < 0 or length > stop - position:
        return -_MALFORMED, 0, 0, False
    if length > 0:
        position += length
    if stop - position != 1 or data[position] != 0:
        position = _skip_headers(data, position, stop)
        if position != stop:
            return -_MALFORMED, 0, 0, False
    return stop, delta, offset_delta, keyed


def refused(
    data: Any,
    position: int,
    end: int,
    count: int,
    base_timestamp: int,
    append_time: int,
    low: int,
    high: int,
    refuse_keyless: bool,
    found: Any,
) -> tuple[int, int]:
    """Count the records without a key, where `refuse_keyless`, and those whose timestamp is not within [low, high].

    `append_time` replaces every timestamp unless it is -1, which is in order wherever it stands. Of the first records,
    as long as there is room in `found`, an array of int64, it gets the index, the timestamp and whether it is refused
    for its key. The caller has had `scan` look at the section. Returns (records, those refused for their timestamps).
    """
    base = cython.address(data[0]) if cython.compiled else data
    room = len(found)
    at = 0
    number = 0
    total = 0
    untimely = 0
    with cython.nogil:
        while number < count:
            length, position = _varint(base, position, end)
            stop = position + length
            timestamp, position = _varlong(base, position + 1, stop)
            timestamp = base_timestamp + timestamp if append_time == -1 else append_time
            _, position = _varint(base, position, stop)
            length, position = _varint(base, position, stop)
            for_key = refuse_keyless and length < 0
            for_time = not for_key and timestamp != -1 and (timestamp < low or timestamp > high)
            if for_key or for_time:
                total += 1
                untimely += for_time
                if at < room:
                    found[at] = number
                    found[at + 1] = timestamp
                    found[at + 2] = for_key
                    at += 3
            number += 1
            position = stop
    return total, untimely


def first_at(
    data: Any,
    position: int,
    end: int,
    count: int,
    base_timestamp: int,
    append_time: int,
    timestamp: int,
    delta_min: int,
) -> tuple[int, int]:
    """(offset delta, timestamp) of the first record with at least both; a delta of -1 if there is none.

    The caller has had `scan` look at the section.
    """
    base = cython.address(data[0]) if cython.compiled else data
    found = -1
    time = -1
    with cython.nogil:
        while count > 0:
            count -= 1
            length, position = _varint(base, position, end)
            stop = position + length
            time, position = _varlong(base, position + 1, stop)
            time = base_timestamp + time if append_time == -1 else append_time
            delta, position = _varint(base, position, stop)
            if time >= timestamp and delta >= delta_min:
                found = delta
                break
            position = stop
    return found, time


def renumber(out: Any, data: Any, position: int, end: int, count: int) -> int:
    """Write `count` records into the bytearray `out` with their indexes as offset deltas.

    `out` has room for `end - position` bytes and 5 more per record. The caller has had `scan` look at the section.
    Returns the bytes written.
    """
    base = cython.address(data[0]) if cython.compiled else data
    number = 0
    at = 0
    with cython.nogil:
        while number < count:
            length, position = _varint(base, position, end)
            start = position
            stop = position + length
            _, position = _varlong(base, position + 1, stop)
            middle = position - start
            _, position = _varint(base, position, stop)
            at = _put_varint(out, at, middle + _varint_size(number) + stop - position)
            at = _copy(out, at, data, start, start + middle)
            at = _put_varint(out, at, number)
            at = _copy(out, at, data, position, stop)
            number += 1
            position = stop
    return at


def _copy(out, at, data, position, stop):
    """Copy `data[position:stop]`; returns the position after it in `out`."""
    if cython.compiled:
        while position < stop:
            out[at] = data[position]
            at += 1
            position += 1
    else:
        out[at : at + stop - position] = data[position:stop]
        at += stop - position
    return at


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
    base = cython.address(view[0]) if cython.compiled else view
    records = []
    while seen > 0:
        seen -= 1
        _, position = _varint(base, position, end)
        attributes = view[position]
        delta, position = _varlong(base, position + 1, end)
        offset_delta, position = _varint(base, position, end)
        key = None
        length, position = _varint(base, position, end)
        if length >= 0:
            key = data[position : position + length]
            position += length
        value = None
        length, position = _varint(base, position, end)
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers = ()
        header_count, position = _varint(base, position, end)
        if header_count > 0:
            pairs = []
            while header_count > 0:
                header_count -= 1
                length, position = _varint(base, position, end)
                name = data[position : position + length].decode("utf-8", "replace")
                position += length
                header_value = None
                length, position = _varint(base, position, end)
                if length >= 0:
                    header_value = data[position : position + length]
                    position += length
                pairs.append((name, header_value))
            headers = tuple(pairs)
        timestamp = base_timestamp + delta if append_time == -1 else append_time
        records.append((base_offset + offset_delta, timestamp, key, value, headers, attributes))
    return records


def marks(
    data: bytes, position: int, end: int, count: int, base_offset: int, header: bytes, wants_keys: bool
) -> list[tuple[int, int | None, bytes | int]]:
    """What share groups ask of records before they deliver them: (offset, hash of the key, value of the last header of
    a name). The hash is None without a key or where it is not wanted; the value is 0 without such a header, and empty
    where it is null. No header is looked for by an empty name. Raises ValueError where `scan` finds fault."""
    status, seen, _, _, _, _, _ = scan(data, position, end, count, 0)
    if status != OK:
        raise ValueError(problem(status, seen))
    view = data
    base = cython.address(view[0]) if cython.compiled else view
    size = len(header)
    found = []
    while seen > 0:
        seen -= 1
        length, position = _varint(base, position, end)
        stop = position + length
        delta, position = _varlong(base, position + 1, end)
        delta, position = _varint(base, position, end)
        length, position = _varint(base, position, end)
        key = None
        if length >= 0:
            if wants_keys:
                key = hash(data[position : position + length])
            position += length
        value = 0
        if size > 0:
            length, position = _varint(base, position, end)
            if length > 0:
                position += length
            header_count, position = _varint(base, position, end)
            while header_count > 0:
                header_count -= 1
                length, position = _varint(base, position, end)
                is_it = length == size and data[position : position + length] == header
                position += length
                length, position = _varint(base, position, end)
                if is_it:
                    value = data[position : position + length] if length >= 0 else b""
                if length > 0:
                    position += length
        found.append((base_offset + delta, key, value))
        position = stop
    return found


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


def _varint_size(value):
    """Bytes of a zigzag varint."""
    raw = value << 1 if value >= 0 else (-(value + 1) << 1) | 1
    size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


def _put_varint(out, at, value):
    """Write a zigzag varint into a buffer; returns the position after it."""
    raw = value << 1 if value >= 0 else (-(value + 1) << 1) | 1
    while raw > 0x7F:
        out[at] = (raw & 0x7F) | 0x80
        at += 1
        raw >>= 7
    out[at] = raw
    return at + 1


def problem(status: int, seen: int) -> str:
    """A sentence for a status of `scan`."""
    if status == TRUNCATED:
        return f"the batch ends inside record {seen}, before its declared number of records"
    if status == LEFT_OVER:
        return f"bytes are left over after the declared {seen} records"
    if status == TIMESTAMP_OVERFLOW:
        return f"record {seen} has a timestamp that is no 64-bit number"
    return f"record {seen} is malformed"
