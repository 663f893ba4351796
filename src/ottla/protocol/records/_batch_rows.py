# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loop that makes records of Arrow's columns, without an object for each: the way back from `_columns.py`.

`append` deals rows out to the sections of partitions, by a column of partitions, the hash of the key, or as the caller
says, and stops where one is full. Sizes are computed before anything is written. Compiled as `_records.py` is.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

if not cython.compiled:
    from ottla.protocol.records._records import _put_varint, _varint_size

# C globals when compiled.
_UINT32_MAX = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_NO_TIMESTAMP = -0x7FFFFFFFFFFFFFFF - 1
_ROOM_MAX = 0x200000
_HALF_DELTA_MAX = 0x3FFFFFFFFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key (`org.apache.kafka.common.utils.Utils.murmur2`), unsigned."""
    length = len(data)
    if not cython.compiled:
        return _murmur2(data, 0, length)
    return _murmur2(cython.address(data[0]) if length > 0 else cython.NULL, 0, length)


def _murmur2(data, position, length):
    hashed = (_MURMUR_SEED ^ length) & _UINT32_MAX
    end = position + (length & ~3)
    while position < end:
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16 | data[position + 3] << 24
        word = (word & _UINT32_MAX) * _MURMUR_FACTOR & _UINT32_MAX
        word ^= word >> 24
        word = word * _MURMUR_FACTOR & _UINT32_MAX
        hashed = (hashed * _MURMUR_FACTOR & _UINT32_MAX) ^ word
        position += 4
    left = length & 3
    if left > 0:
        if left > 2:
            hashed ^= data[position + 2] << 16
        if left > 1:
            hashed ^= data[position + 1] << 8
        hashed ^= data[position]
        hashed = (hashed & _UINT32_MAX) * _MURMUR_FACTOR & _UINT32_MAX
    hashed ^= hashed >> 13
    hashed = hashed * _MURMUR_FACTOR & _UINT32_MAX
    return hashed ^ hashed >> 15


class Bytes:
    """A column of bytes in Arrow's memory: null where there is none at all."""

    __slots__ = ("data", "has_nulls", "is_there", "offsets", "start", "validity")

    def __init__(self, validity: object, offsets: object, data: object, start: int, is_there: bool = True) -> None:
        """`start` is the array's offset into its buffers. `validity` is None where nothing is null."""
        self.is_there = is_there
        self.has_nulls = validity is not None
        self.validity = validity
        self.offsets = offsets
        self.data = data
        self.start = start

    def length(self, row):
        """-1 for null."""
        if not self.is_there:
            return -1
        row += self.start
        if self.has_nulls and not self.validity[row >> 3] >> (row & 7) & 1:
            return -1
        return self.offsets[row + 1] - self.offsets[row]

    def position(self, row):
        return self.offsets[row + self.start] if self.is_there else 0


class Numbers:
    """A column of int64."""

    __slots__ = ("has_nulls", "is_there", "start", "validity", "values")

    def __init__(self, validity: object, values: object, start: int, is_there: bool = True) -> None:
        self.is_there = is_there
        self.has_nulls = validity is not None
        self.validity = validity
        self.values = values
        self.start = start

    def at(self, row):
        """The least int64 for null."""
        if not self.is_there:
            return _NO_TIMESTAMP
        row += self.start
        if self.has_nulls and not self.validity[row >> 3] >> (row & 7) & 1:
            return _NO_TIMESTAMP
        return self.values[row]


class Headers:
    """A column of lists of (name, value)."""

    __slots__ = ("is_there", "lists", "names", "values")

    def __init__(self, lists: Bytes, names: Bytes, values: Bytes, is_there: bool = True) -> None:
        """`lists` has the offsets into `names` and `values`, and no data."""
        self.is_there = is_there
        self.lists = lists
        self.names = names
        self.values = values


class Section:
    """The records of a batch in the making, behind `head` bytes that are left for the batch's header."""

    __slots__ = ("base_timestamp", "count", "head", "max_timestamp", "memory", "size", "view")

    def __init__(self, room: int, head: int) -> None:
        self.head = head
        self._start(room)

    def _start(self, room):
        self.count = 0
        self.size = self.head
        self.base_timestamp = 0
        self.max_timestamp = 0
        # Not cleared when compiled: all that is handed out is written first.
        self.memory = PyByteArray_FromStringAndSize(cython.NULL, room) if cython.compiled else bytearray(room)  # noqa: F821
        self.view = self.memory

    def take(self) -> tuple[memoryview, int, int, int]:
        """(room for the header and records, count, base timestamp, max timestamp); and is empty again, with as much
        room, but for huge rows."""
        taken = memoryview(self.memory)[: self.size], self.count, self.base_timestamp, self.max_timestamp
        self._start(min(len(self.memory), _ROOM_MAX))
        return taken

    def add(self, row, key, value, headers, timestamp, limit):
        """Whether there was room within `limit`, which the first record of a batch need not hold to."""
        if self.count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        if not -_HALF_DELTA_MAX < (timestamp >> 1) - (self.base_timestamp >> 1) < _HALF_DELTA_MAX:
            return False  # a delta has 64 bits
        delta = timestamp - self.base_timestamp
        key_length = key.length(row)
        value_length = value.length(row)
        size = 1 + _varint_size(delta) + _varint_size(self.count) + _varint_size(key_length)
        size += _varint_size(value_length)
        if key_length > 0:
            size += key_length
        if value_length > 0:
            size += value_length
        first = last = 0
        if headers.is_there and headers.lists.length(row) > 0:
            first = headers.lists.position(row)
            last = first + headers.lists.length(row)
            at = first
            while at < last:
                size += _field_size(headers.names, at) + _field_size(headers.values, at)
                at += 1
        size += _varint_size(last - first)
        needed = size + _varint_size(size)
        if self.count > 0 and self.size - self.head + needed > limit:
            return False
        if self.size + needed > len(self.memory):
            self._grow(self.size + needed)
        at = _put_varint(self.view, self.size, size)
        self.view[at] = 0
        at = _put_varint(self.view, at + 1, delta)
        at = _put_varint(self.view, at, self.count)
        at = self._put(at, key, row)
        at = self._put(at, value, row)
        at = _put_varint(self.view, at, last - first)
        while first < last:
            at = self._put(at, headers.names, first)
            at = self._put(at, headers.values, first)
            first += 1
        self.size = at
        self.count += 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return True

    def _grow(self, size):
        larger = bytearray(2 * size)
        memoryview(larger)[: self.size] = memoryview(self.memory)[: self.size]
        self.memory = larger
        self.view = larger

    def _put(self, at, column, row):
        """A field with its length; returns the position after it."""
        length = column.length(row)
        at = _put_varint(self.view, at, length)
        if length > 0:
            start = column.position(row)
            if cython.compiled:
                memcpy(cython.address(self.view[at]), cython.address(column.data[start]), length)  # noqa: F821
            else:
                self.view[at : at + length] = column.data[start : start + length]
            at += length
        return at


def _field_size(column, row):
    length = column.length(row)
    return _varint_size(length) + (length if length > 0 else 0)


def _hash(key, row, length):
    """Hash from which the partition of a key is computed: never negative."""
    if not cython.compiled:
        return _murmur2(key.data, key.position(row), length) & 0x7FFFFFFF
    if length == 0:
        return _murmur2(cython.NULL, 0, 0) & 0x7FFFFFFF
    return _murmur2(cython.address(key.data[key.position(row)]), 0, length) & 0x7FFFFFFF


def append(
    sections: list[Section],
    row: int,
    stop: int,
    key: Bytes,
    value: Bytes,
    headers: Headers,
    partitions: Numbers,
    timestamps: Numbers,
    now: int,
    sticky: int,
    limit: int,
) -> tuple[int, int]:
    """Add rows from `row` up to `stop` to the sections of their partitions.

    `sticky` is the partition of rows that have neither a partition nor a key, `now` (ms) the time of those without a
    timestamp. Returns the row to go on from and why: -1 all are added, -2 its partition does not exist, else the
    partition whose section is full.
    """
    count = len(sections)
    while row < stop:
        chosen = partitions.at(row)
        if chosen == _NO_TIMESTAMP:
            length = key.length(row)
            if length < 0:
                chosen = sticky
            else:
                chosen = _hash(key, row, length) % count
        elif not 0 <= chosen < count:
            return row, -2
        timestamp = timestamps.at(row)
        section = sections[chosen]
        if not section.add(row, key, value, headers, now if timestamp == _NO_TIMESTAMP else timestamp, limit):
            return row, chosen
        row += 1
    return row, -1
