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
    from ottla.protocol import no_cython as cython

# C globals when compiled: a literal of this size would be a Python object there.
_UINT32_MAX = 0xFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_INT64_MIN = -0x7FFFFFFFFFFFFFFF - 1
_SIP_0 = 0x736F6D6570736575
_SIP_1 = 0x646F72616E646F6D
_SIP_2 = 0x6C7967656E657261
_SIP_3 = 0x7465646279746573

OK = 0
TRUNCATED = 1
"""The section ends before the declared number of records does."""
MALFORMED = 2
"""A record's fields do not fill the length that it declares, or a length or varint is impossible."""
LEFT_OVER = 3
"""Bytes follow the declared number of records."""
TIMESTAMP_OVERFLOW = 4
"""A base timestamp and delta whose sum is no int64."""

# The same as C globals.
_OK = OK
_TRUNCATED = TRUNCATED
_MALFORMED = MALFORMED
_LEFT_OVER = LEFT_OVER
_TIMESTAMP_OVERFLOW = TIMESTAMP_OVERFLOW


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
    return _scan(data, position, end, count, base_timestamp)


def scan_unlocked(
    data: Any, position: int, end: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, int, int, int]:
    """`scan` without the interpreter's lock, for a thread: so many records would keep the event loop waiting."""
    with cython.nogil:
        status, seen, least, greatest, index, keyless, misplaced = _scan(data, position, end, count, base_timestamp)
    return status, seen, least, greatest, index, keyless, misplaced


def _scan(data, position, end, count, base_timestamp):
    seen = 0
    least = _INT64_MAX
    greatest = -1
    greatest_index = -1
    keyless = -1
    misplaced = -1
    while seen < count:
        if position >= end:
            return _TRUNCATED, seen, least, greatest, greatest_index, keyless, misplaced
        length, position = _varint(data, position, end)
        if position < 0 or length < 0:
            return _MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if length > end - position:
            return _TRUNCATED, seen, least, greatest, greatest_index, keyless, misplaced
        stop = position + length
        delta, position = _varlong(data, position + 1, stop)
        if position < 0:
            return _MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if base_timestamp > _INT64_MAX - delta if delta > 0 else base_timestamp < _INT64_MIN - delta:
            return _TIMESTAMP_OVERFLOW, seen, least, greatest, greatest_index, keyless, misplaced
        timestamp = base_timestamp + delta
        if timestamp > greatest:
            greatest = timestamp
            greatest_index = seen
        if timestamp < least and timestamp != -1:
            least = timestamp
        offset_delta, position = _varint(data, position, stop)
        if position < 0:
            return _MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if offset_delta != seen and misplaced < 0:
            misplaced = seen
        length, position = _varint(data, position, stop)
        if position < 0 or length > stop - position:
            return _MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if length >= 0:
            position += length
        elif keyless < 0:
            keyless = seen
        length, position = _varint(data, position, stop)
        if position < 0 or length > stop - position:
            return _MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        if length > 0:
            position += length
        if stop - position != 1 or data[position] != 0:
            position = _skip_headers(data, position, stop)
            if position != stop:
                return _MALFORMED, seen, least, greatest, greatest_index, keyless, misplaced
        else:
            position = stop
        seen += 1
    return (
        _OK if position == end else _LEFT_OVER, seen, least, greatest, greatest_index, keyless, misplaced,
    )  # fmt: skip


def refused(
    data: Any, position: int, end: int, count: int, base_timestamp: int, append_time: int, low: int, high: int,
    refuse_keyless: bool, found: Any,
) -> tuple[int, int]:  # fmt: skip
    """Count the records without a key, where `refuse_keyless`, and those whose timestamp is not within [low, high].

    `append_time` replaces every timestamp unless it is -1, which is in order wherever it stands. Of the first records,
    as long as there is room in `found`, an array of int64, it gets the index, the timestamp and whether it is refused
    for its key. The caller has had `scan` look at the section. Returns (records, those refused for their timestamps).
    """
    room = len(found)
    at = 0
    number = 0
    total = 0
    untimely = 0
    with cython.nogil:
        while number < count:
            length, position = _varint(data, position, end)
            stop = position + length
            timestamp, position = _varlong(data, position + 1, stop)
            timestamp = base_timestamp + timestamp if append_time == -1 else append_time
            _, position = _varint(data, position, stop)
            length, position = _varint(data, position, stop)
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
    data: Any, position: int, end: int, count: int, base_timestamp: int, append_time: int, timestamp: int,
    delta_min: int,
) -> tuple[int, int]:  # fmt: skip
    """(offset delta, timestamp) of the first record with at least both; a delta of -1 if there is none.

    The caller has had `scan` look at the section.
    """
    found = -1
    time = -1
    with cython.nogil:
        while count > 0:
            count -= 1
            length, position = _varint(data, position, end)
            stop = position + length
            time, position = _varlong(data, position + 1, stop)
            time = base_timestamp + time if append_time == -1 else append_time
            delta, position = _varint(data, position, stop)
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
    number = 0
    at = 0
    with cython.nogil:
        while number < count:
            length, position = _varint(data, position, end)
            start = position
            stop = position + length
            _, position = _varlong(data, position + 1, stop)
            middle = position - start
            _, position = _varint(data, position, stop)
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


# Compaction. The callers have had `scan` look at a section, so these loops trust its lengths. They work without the
# interpreter's lock, so that a thread that compacts does not keep the event loop waiting.


def _hash(data, position, stop, seed_0, seed_1):
    """SipHash-2-4 with 128 bits of `data[position:stop]`: nobody who lacks the seed can make two keys collide."""
    first = 0
    v0 = _SIP_0 ^ seed_0
    v1 = _SIP_1 ^ seed_1 ^ 0xEE
    v2 = _SIP_2 ^ seed_0
    v3 = _SIP_3 ^ seed_1
    length = stop - position
    blocks = length >> 3
    block = 0
    while block < blocks + 3:
        word = 0
        if block < blocks:
            shift = 0
            while shift < 64:
                byte = data[position]
                word |= byte << shift
                position += 1
                shift += 8
        elif block == blocks:
            word = (length & 0xFF) << 56
            shift = 0
            while position < stop:
                byte = data[position]
                word |= byte << shift
                position += 1
                shift += 8
        elif block == blocks + 1:
            v2 ^= 0xEE
        else:
            first = v0 ^ v1 ^ v2 ^ v3
            v1 ^= 0xDD
        v3 ^= word
        rounds = 2 if block <= blocks else 4
        while rounds > 0:
            rounds -= 1
            v0 = (v0 + v1) & _UINT64_MAX
            v1 = ((v1 << 13) | (v1 >> 51)) & _UINT64_MAX
            v1 ^= v0
            v0 = ((v0 << 32) | (v0 >> 32)) & _UINT64_MAX
            v2 = (v2 + v3) & _UINT64_MAX
            v3 = ((v3 << 16) | (v3 >> 48)) & _UINT64_MAX
            v3 ^= v2
            v0 = (v0 + v3) & _UINT64_MAX
            v3 = ((v3 << 21) | (v3 >> 43)) & _UINT64_MAX
            v3 ^= v0
            v2 = (v2 + v1) & _UINT64_MAX
            v1 = ((v1 << 17) | (v1 >> 47)) & _UINT64_MAX
            v1 ^= v2
            v2 = ((v2 << 32) | (v2 >> 32)) & _UINT64_MAX
        v0 ^= word
        block += 1
    return first, v0 ^ v1 ^ v2 ^ v3


def hash_key(key: bytes, seed_0: int, seed_1: int) -> tuple[int, int]:
    """The two halves of a key's hash."""
    first, second = _hash(key, 0, len(key), seed_0, seed_1)
    return first, second


def _slot(table, slots, first, second):
    """Where in the table a hash is or would go; -1 if it is not there and nothing is free.

    A slot is three words: the hash's halves, and the offset plus one, which is 0 where the slot is free.
    """
    number = first % slots
    tries = 0
    while tries < slots:
        at = number * 3
        if table[at + 2] == 0 or (table[at] == first and table[at + 1] == second):
            return at
        number += 1
        if number == slots:
            number = 0
        tries += 1
    return -1


def map_keys(
    table: Any, seed_0: int, seed_1: int, used: int, used_max: int,
    data: bytes, position: int, end: int, count: int, base_offset: int, start_offset: int,
) -> tuple[int, int, bool]:  # fmt: skip
    """Put the offset of every key from `start_offset` on into the table, until `used_max` slots are taken.

    Returns (slots taken, offset of the last record put or -1, whether a record was left out because it is full).
    """
    slots = len(table) // 3
    last = -1
    full = False
    with cython.nogil:
        while count > 0:
            count -= 1
            length, position = _varint(data, position, end)
            stop = position + length
            _, position = _varlong(data, position + 1, stop)
            delta, position = _varint(data, position, stop)
            length, position = _varint(data, position, stop)
            if length >= 0 and base_offset + delta >= start_offset:
                if used >= used_max:
                    full = True
                    break
                first, second = _hash(data, position, position + length, seed_0, seed_1)
                at = _slot(table, slots, first, second)
                if at < 0:
                    full = True
                    break
                if table[at + 2] == 0:
                    used += 1
                    table[at] = first
                    table[at + 1] = second
                table[at + 2] = base_offset + delta + 1
                last = base_offset + delta
            position = stop
    return used, last, full


def retain(
    table: Any, seed_0: int, seed_1: int, mapped_to: int, drop_tombstones: bool, keep: Any,
    data: bytes, position: int, end: int, count: int, base_offset: int, base_timestamp: int,
) -> tuple[int, int, bool, int, int]:  # fmt: skip
    """Mark in the bytearray `keep` which of `count` records stay: the latest of each key, and all above `mapped_to`.

    Returns (records that stay, records without a key, whether a tombstone stays, the first timestamp of those that
    stay, their greatest).
    """
    slots = len(table) // 3
    number = 0
    kept = 0
    keyless = 0
    tombstones = False
    first_timestamp = -1
    greatest = -1
    with cython.nogil:
        while number < count:
            length, position = _varint(data, position, end)
            stop = position + length
            timestamp, position = _varlong(data, position + 1, stop)
            timestamp += base_timestamp
            delta, position = _varint(data, position, stop)
            length, position = _varint(data, position, stop)
            stays = base_offset + delta > mapped_to
            if length < 0:
                if not stays:
                    keyless += 1
                value_length, position = _varint(data, position, stop)
            elif stays:
                value_length, position = _varint(data, position + length, stop)
            else:
                value_length, _ = _varint(data, position + length, stop)
                if value_length >= 0 or not drop_tombstones:
                    first, second = _hash(data, position, position + length, seed_0, seed_1)
                    at = _slot(table, slots, first, second)
                    stays = at < 0 or table[at + 2] <= base_offset + delta + 1
            keep[number] = stays
            if stays:
                if kept == 0:
                    first_timestamp = timestamp
                kept += 1
                if timestamp > greatest:
                    greatest = timestamp
                if value_length < 0:
                    tombstones = True
            number += 1
            position = stop
    return kept, keyless, tombstones, first_timestamp, greatest


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


def copy_kept(
    out: Any, keep: Any, data: bytes, position: int, end: int, count: int, base_timestamp: int, append_time: int,
    new_base_timestamp: int,
) -> int:  # fmt: skip
    """Write the records that `keep` marks into the bytearray `out`, their timestamps relative to a new base.

    `append_time` replaces every timestamp unless it is -1. `out` has room for `end - position` bytes and 14 more per
    record. Returns the bytes written.
    """
    number = 0
    at = 0
    with cython.nogil:
        while number < count:
            length, position = _varint(data, position, end)
            start = position
            stop = position + length
            if keep[number]:
                delta, position = _varlong(data, position + 1, stop)
                if append_time != -1:
                    delta = append_time - new_base_timestamp
                else:
                    delta = base_timestamp + delta - new_base_timestamp
                rest = stop - position
                at = _put_varint(out, at, 1 + _varint_size(delta) + rest)
                out[at] = data[start]
                at = _put_varint(out, at + 1, delta)
                at = _copy(out, at, data, position, stop)
            number += 1
            position = stop
    return at


def problem(status: int, seen: int) -> str:
    """A sentence for a status of `scan`."""
    if status == TRUNCATED:
        return f"the batch ends inside record {seen}, before its declared number of records"
    if status == LEFT_OVER:
        return f"bytes are left over after the declared {seen} records"
    if status == TIMESTAMP_OVERFLOW:
        return f"record {seen} has a timestamp that is no 64-bit number"
    return f"record {seen} is malformed"
