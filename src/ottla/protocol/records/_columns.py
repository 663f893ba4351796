# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loop that copies the records of a batch into columns, in the memory layout of Arrow, without an object for each.

`Rows.append` takes one decompressed section of records. No buffer grows inside the loop: before it there is room for
as many rows as the section could hold and for as many bytes as it has, so a second pass that measures is not needed.
Nothing here trusts a length, as in `_records.py`, whose functions read the numbers; compiled as that file is.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

if not cython.compiled:
    from ottla.protocol.records._records import _skip_headers, _varint, _varlong

# C globals when compiled.
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_INT64_MIN = -0x7FFFFFFFFFFFFFFF - 1
_MILLIS_MAX = _INT64_MAX // 1000
_OK = 0
_TRUNCATED = 1
_MALFORMED = 2
_LEFT_OVER = 3
_TIMESTAMP_OVERFLOW = 4
"""As in `_records.py`."""

_RECORD_BYTES_MIN = 7
_HEADER_BYTES_MIN = 2
_ROWS_MIN = 1024
_BYTES_MIN = 1 << 16


def _room(size):
    """A bytearray that is not cleared when compiled: all of it that is handed out is written first."""
    return PyByteArray_FromStringAndSize(cython.NULL, size) if cython.compiled else bytearray(size)  # noqa: F821


def _grown(buffer, used, size):
    """A larger buffer that begins with what is `used` of `buffer`."""
    larger = _room(size)
    memoryview(larger)[:used] = memoryview(buffer)[:used]
    return larger


def _micros(millis):
    """Microseconds, at the end of int64 where it does not hold so many."""
    if millis > _MILLIS_MAX:
        return _INT64_MAX
    if millis < -_MILLIS_MAX:
        return _INT64_MIN
    return millis * 1000


class Bits:
    """A validity bitmap in the making: ones, until a row is said to be null."""

    __slots__ = ("memory", "nulls", "view")

    def __init__(self):
        self._start()

    def _start(self):
        self.nulls = False
        self.memory = bytearray(b"\xff") * (_ROWS_MIN // 8)
        self.view = self.memory

    def reserve(self, rows):
        """Room for so many rows in all."""
        size = (rows + 7) // 8
        if size > len(self.memory):
            self.memory = self.memory + bytearray(b"\xff") * (2 * size - len(self.memory))
            self.view = self.memory

    def clear(self, row):
        self.nulls = True
        self.view[row >> 3] &= ~(1 << (row & 7)) & 0xFF

    def undo(self, rows, end):
        """Ones again from row `rows` up to `end`."""
        while rows < end:
            self.view[rows >> 3] |= 1 << (rows & 7)
            rows += 1

    def take(self, rows):
        """The bitmap of so many rows, None if none of them is null; and is empty again."""
        if not self.nulls:
            return None
        taken = memoryview(self.memory)[: (rows + 7) // 8]
        self._start()
        return taken


class Binary:
    """A column of bytes in the making, as Arrow's: a validity bitmap, int32 offsets (one more than rows), the bytes."""

    __slots__ = ("bits", "data", "data_memory", "offsets", "offsets_memory", "rows_max", "size")

    def __init__(self):
        self.bits = Bits()
        self.size = 0
        self._start(_ROWS_MIN, _BYTES_MIN)

    def _start(self, rows, size):
        self.size = 0
        self.rows_max = rows
        self.offsets_memory = _room(4 * (rows + 1))
        self.offsets = memoryview(self.offsets_memory).cast("i")
        self.offsets[0] = 0
        self.data_memory = _room(size)
        self.data = memoryview(self.data_memory)

    def reserve(self, rows, more, size):
        """Room behind `rows` for so many more of them, of so many bytes."""
        if rows + more > self.rows_max:
            self.rows_max = 2 * (rows + more)
            self.offsets_memory = _grown(self.offsets_memory, 4 * (rows + 1), 4 * (self.rows_max + 1))
            self.offsets = memoryview(self.offsets_memory).cast("i")
        self.bits.reserve(rows + more)
        if self.size + size > len(self.data_memory):
            self.data_memory = _grown(self.data_memory, self.size, max(self.size + size, 2 * self.size))
            self.data = memoryview(self.data_memory)

    def put(self, row, data, position, length):
        """Write `data[position : position + length]` as row `row`; null if the length is negative."""
        if length > 0:
            if cython.compiled:
                memcpy(cython.address(self.data[self.size]), data + position, length)  # noqa: F821
            else:
                self.data[self.size : self.size + length] = data[position : position + length]
            self.size += length
        elif length < 0:
            self.bits.clear(row)
        self.offsets[row + 1] = self.size

    def undo(self, rows, end):
        """Drop the rows from `rows` on; `end` is behind the last that may have been written."""
        self.size = self.offsets[rows]
        self.bits.undo(rows, end)

    def take(self, rows):
        """(validity or None, offsets, data) of the `rows` in it; and is empty again, with as much room as they took."""
        offsets = memoryview(self.offsets_memory)[: 4 * (rows + 1)]
        data = memoryview(self.data_memory)[: self.size]
        validity = self.bits.take(rows)
        self._start(rows + rows // 8 + _ROWS_MIN, self.size + self.size // 8 + _BYTES_MIN)
        return validity, offsets, data


class Rows:
    """Columns in the making; those that are not wanted stay empty."""

    __slots__ = (
        "header_count",
        "header_key",
        "header_value",
        "headers",
        "key",
        "keys",
        "list",
        "list_memory",
        "lists",
        "offset",
        "offset_memory",
        "rows",
        "rows_max",
        "timestamp",
        "timestamp_memory",
        "timestamps",
        "type",
        "type_memory",
        "value",
        "values",
    )

    def __init__(self, keys: bool, values: bool, headers: bool, timestamps: bool) -> None:
        self.keys = keys
        self.values = values
        self.headers = headers
        self.timestamps = timestamps
        self.key = Binary()
        self.value = Binary()
        self.lists = Bits()
        self.header_key = Binary()
        self.header_value = Binary()
        self._start(_ROWS_MIN)

    def _start(self, rows):
        self.rows = 0
        self.header_count = 0
        self.rows_max = 0
        self.offset_memory = self.timestamp_memory = self.type_memory = self.list_memory = bytearray(4)
        self._grow(rows)

    def _grow(self, rows_max):
        used = self.rows
        self.rows_max = rows_max
        self.offset_memory = _grown(self.offset_memory, 8 * used, 8 * rows_max)
        self.offset = memoryview(self.offset_memory).cast("q")
        self.timestamp_memory = _grown(self.timestamp_memory, 8 * used, 8 * rows_max)
        self.timestamp = memoryview(self.timestamp_memory).cast("q")
        self.type_memory = _grown(self.type_memory, 4 * used, 4 * rows_max)
        self.type = memoryview(self.type_memory).cast("i")
        self.list_memory = _grown(self.list_memory, 4 * (used + 1), 4 * (rows_max + 1))
        self.list = memoryview(self.list_memory).cast("i")

    @property
    def bytes(self) -> int:
        """Bytes of keys, values and headers."""
        return self.key.size + self.value.size + self.header_key.size + self.header_value.size

    def append(
        self,
        data: Any,
        position: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        timestamp_type: int,
        start: int,
        stop: int,
    ) -> tuple[int, int]:
        """Append those of the `count` records in `data[position:end]` with `start <= offset < stop`.

        `append_time` replaces every timestamp (milliseconds) unless it is -1. Returns (status, records seen) as
        `_records.scan` does; unless it is OK nothing is appended. Room for int32 offsets is the caller's matter.
        """
        size = end - position
        if count > size // _RECORD_BYTES_MIN:
            return _TRUNCATED, size // _RECORD_BYTES_MIN
        self._reserve(count, size)
        before = self.rows
        headers_before = self.header_count
        base = cython.address(data[0]) if cython.compiled else data
        with cython.nogil:
            status, seen = self._append(
                base, position, end, count, base_offset, base_timestamp, append_time, timestamp_type, start, stop
            )
            if status != _OK:
                self._undo(before, headers_before)
        return status, seen

    def _reserve(self, count, size):
        """Room for so many more records in so many bytes."""
        if self.rows + count > self.rows_max:
            self._grow(2 * (self.rows + count))
        if self.keys:
            self.key.reserve(self.rows, count, size)
        if self.values:
            self.value.reserve(self.rows, count, size)
        if self.headers:
            self.lists.reserve(self.rows + count)
            self.header_key.reserve(self.header_count, size // _HEADER_BYTES_MIN, size)
            self.header_value.reserve(self.header_count, size // _HEADER_BYTES_MIN, size)

    def _undo(self, rows, header_count):
        if self.keys:
            self.key.undo(rows, self.rows + 1)
        if self.values:
            self.value.undo(rows, self.rows + 1)
        if self.headers:
            self.lists.undo(rows, self.rows + 1)
            self.header_key.undo(header_count, self.header_count + 1)
            self.header_value.undo(header_count, self.header_count + 1)
        self.rows = rows
        self.header_count = header_count

    def _append(
        self, data, position, end, count, base_offset, base_timestamp, append_time, timestamp_type, start, stop
    ):
        seen = 0
        while seen < count:
            if position >= end:
                return _TRUNCATED, seen
            length, position = _varint(data, position, end)
            if position < 0 or length < 0:
                return _MALFORMED, seen
            if length > end - position:
                return _TRUNCATED, seen
            record_end = position + length
            delta, position = _varlong(data, position + 1, record_end)
            if position < 0:
                return _MALFORMED, seen
            if base_timestamp > _INT64_MAX - delta if delta > 0 else base_timestamp < _INT64_MIN - delta:
                return _TIMESTAMP_OVERFLOW, seen
            number, position = _varint(data, position, record_end)
            if position < 0:
                return _MALFORMED, seen
            key_length, position = _varint(data, position, record_end)
            if position < 0 or key_length > record_end - position:
                return _MALFORMED, seen
            key = position
            if key_length > 0:
                position += key_length
            value_length, position = _varint(data, position, record_end)
            if position < 0 or value_length > record_end - position:
                return _MALFORMED, seen
            value = position
            if value_length > 0:
                position += value_length
            plain = record_end - position == 1 and data[position] == 0
            if not plain and _skip_headers(data, position, record_end) != record_end:
                return _MALFORMED, seen
            offset = base_offset + number
            if start <= offset < stop:
                row = self.rows
                self.offset[row] = offset
                if self.timestamps:
                    self.timestamp[row] = _micros(base_timestamp + delta if append_time == -1 else append_time)
                    self.type[row] = timestamp_type
                if self.keys:
                    self.key.put(row, data, key, key_length)
                if self.values:
                    self.value.put(row, data, value, value_length)
                if self.headers:
                    self._put_headers(row, data, position, record_end)
                self.rows = row + 1
            position = record_end
            seen += 1
        return (_OK if position == end else _LEFT_OVER), seen

    def _put_headers(self, row, data, position, end):
        """Headers that `_skip_headers` has looked at; a record without any has null for its list, as in Spark."""
        self.list[row] = self.header_count
        count, position = _varint(data, position, end)
        if count == 0:
            self.lists.clear(row)
        while count > 0:
            count -= 1
            length, position = _varint(data, position, end)
            self.header_key.put(self.header_count, data, position, length)
            position += length
            length, position = _varint(data, position, end)
            self.header_value.put(self.header_count, data, position, length)
            if length > 0:
                position += length
            self.header_count += 1

    def take(self) -> tuple[Any, ...]:
        """The columns, in the order of `columns.ColumnBuffers`; and is empty again."""
        rows = self.rows
        nothing = (None, None, None)
        timestamps = self.timestamps
        self.list[rows] = self.header_count
        taken = (
            rows,
            memoryview(self.offset_memory)[: 8 * rows],
            memoryview(self.timestamp_memory)[: 8 * rows] if timestamps else None,
            memoryview(self.type_memory)[: 4 * rows] if timestamps else None,
            *(self.key.take(rows) if self.keys else nothing),
            *(self.value.take(rows) if self.values else nothing),
            self.header_count,
            self.lists.take(rows) if self.headers else None,
            memoryview(self.list_memory)[: 4 * (rows + 1)] if self.headers else None,
            *(self.header_key.take(self.header_count)[1:] if self.headers else nothing[1:]),
            *(self.header_value.take(self.header_count) if self.headers else nothing),
        )
        self._start(rows + rows // 8 + _ROWS_MIN)
        return taken
