# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Compaction's loops over the records inside a batch: a map of hashes of keys, and which records stay.

The callers have had `_records.scan` look at a section, so these loops trust its lengths. They work without the
interpreter's lock, so that a thread that compacts does not keep the event loop waiting. Compiled as `_records.py` is.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

if not cython.compiled:
    from ottla.protocol.records._records import _copy, _put_varint, _varint, _varint_size, _varlong

# C globals when compiled.
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF
_SIP_0 = 0x736F6D6570736575
_SIP_1 = 0x646F72616E646F6D
_SIP_2 = 0x6C7967656E657261
_SIP_3 = 0x7465646279746573


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
    table: Any,
    seed_0: int,
    seed_1: int,
    used: int,
    used_max: int,
    data: bytes,
    position: int,
    end: int,
    count: int,
    base_offset: int,
    start_offset: int,
) -> tuple[int, int, bool]:
    """Put the offset of every key from `start_offset` on into the table, until `used_max` slots are taken.

    Returns (slots taken, offset of the last record put or -1, whether a record was left out because it is full).
    """
    base = cython.address(data[0]) if cython.compiled else data
    slots = len(table) // 3
    last = -1
    full = False
    with cython.nogil:
        while count > 0:
            count -= 1
            length, position = _varint(base, position, end)
            stop = position + length
            _, position = _varlong(base, position + 1, stop)
            delta, position = _varint(base, position, stop)
            length, position = _varint(base, position, stop)
            if length >= 0 and base_offset + delta >= start_offset:
                if used >= used_max:
                    full = True
                    break
                first, second = _hash(base, position, position + length, seed_0, seed_1)
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
    table: Any,
    seed_0: int,
    seed_1: int,
    mapped_to: int,
    drop_tombstones: bool,
    keep: Any,
    data: bytes,
    position: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
) -> tuple[int, int, bool, int, int]:
    """Mark in the bytearray `keep` which of `count` records stay: the latest of each key, and all above `mapped_to`.

    Returns (records that stay, records without a key, whether a tombstone stays, the first timestamp of those that
    stay, their greatest).
    """
    base = cython.address(data[0]) if cython.compiled else data
    slots = len(table) // 3
    number = 0
    kept = 0
    keyless = 0
    tombstones = False
    first_timestamp = -1
    greatest = -1
    with cython.nogil:
        while number < count:
            length, position = _varint(base, position, end)
            stop = position + length
            timestamp, position = _varlong(base, position + 1, stop)
            timestamp += base_timestamp
            delta, position = _varint(base, position, stop)
            length, position = _varint(base, position, stop)
            stays = base_offset + delta > mapped_to
            if length < 0:
                if not stays:
                    keyless += 1
                value_length, position = _varint(base, position, stop)
            elif stays:
                value_length, position = _varint(base, position + length, stop)
            else:
                value_length, _ = _varint(base, position + length, stop)
                if value_length >= 0 or not drop_tombstones:
                    first, second = _hash(base, position, position + length, seed_0, seed_1)
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


def copy_kept(
    out: Any,
    keep: Any,
    data: bytes,
    position: int,
    end: int,
    count: int,
    base_timestamp: int,
    append_time: int,
    new_base_timestamp: int,
) -> int:
    """Write the records that `keep` marks into the bytearray `out`, their timestamps relative to a new base.

    `append_time` replaces every timestamp unless it is -1. `out` has room for `end - position` bytes and 14 more per
    record. Returns the bytes written.
    """
    base = cython.address(data[0]) if cython.compiled else data
    number = 0
    at = 0
    with cython.nogil:
        while number < count:
            length, position = _varint(base, position, end)
            start = position
            stop = position + length
            if keep[number]:
                delta, position = _varlong(base, position + 1, stop)
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
