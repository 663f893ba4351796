# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Writes every message of Kafka's protocol: requests, responses, records and snapshots; see `reader.py`.

Compiled, with C types in `writer.pxd`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.model import ZERO_UUID
from ottla.protocol import layout as layouts
from ottla.protocol.layout import Field, Layout, TooLong, UnsupportedVersion, of_defaults

ERROR_MESSAGE_LENGTH_MAX = 4_000
"""Characters: a message may repeat what it is about, and no string of more than 32767 bytes can be sent."""

# C globals when compiled.
_NUMBERS = 8
_INT8, _INT16, _UINT16, _INT32, _UINT32, _INT64, _BOOL, _ERROR = range(1, 9)
_FLOAT64, _UUID, _STRING, _BYTES, _RECORDS, _STRUCT = range(9, 15)
_TWO_31 = 1 << 31
_TWO_32 = 1 << 32
_TWO_63 = 1 << 63
_UNLIMITED = 1 << 62
_STRING_MAX = layouts.STRING_BYTES_MAX
_STEP_COST = layouts.STEP_COST
_ROW_ITEMS = layouts.ROW_ITEMS_MAX
_MISSING = layouts.MISSING
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLE = struct.Struct(">d")


def _default(field):
    """The value of a field that is not there."""
    return of_defaults(field.layout) if field.default is _MISSING else field.default


class Writer:
    """Writes structs behind `head`: objects of their class, mappings, or others with attributes of those names.

    What a mapping lacks has its default, and what the version lacks is left out. Raises UnsupportedVersion, and
    struct.error for a number or length out of range.
    """

    __slots__ = ("_capacity", "_cost", "_data", "_row_items", "_size")

    def __init__(self, head: bytes = b"") -> None:
        if cython.compiled:
            self._capacity = 256
            self._data = cython.cast(cython.p_uchar, PyMem_Malloc(256))
            if self._data == cython.NULL:
                raise MemoryError
        else:
            self._data = bytearray()
        self._size = 0
        self._row_items = _UNLIMITED
        self._cost = 0
        self._put_bytes(head)

    def __dealloc__(self) -> None:
        if cython.compiled:
            PyMem_Free(self._data)

    def done(self) -> bytes:
        """What was written."""
        if cython.compiled:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._data), self._size)
        return bytes(self._data)

    def write(self, layout: Layout, values: Any) -> None:
        self._struct(layout, values)

    @cython.locals(layout=Layout, field=Field)
    def steps(self, layout: Layout, values: Any) -> Generator[int, None, None]:
        """Like `write`; yields the cost of what was written."""
        values = _source(values)
        self._refuse(layout, values)
        for field in layout.fields:
            value = self._find(layout, field, values)
            if field.is_array and value is not None:
                self._put_length(len(value), field.flexible, True)
                for row in value:
                    if field.layout is None:
                        self._value(field, row, False)
                    elif not self._short(field.layout, row):
                        yield from self.steps(field.layout, row)
                    self._cost += field.item_cost
                    if self._cost >= _STEP_COST:
                        cost = self._cost
                        self._cost = 0
                        yield cost
            elif field.layout is not None and field.layout.has_arrays and not field.is_array and value is not None:
                if field.nullable:
                    self._put_byte(1)
                yield from self.steps(field.layout, value)
            else:
                self._field(field, value, False)
        self._tags(layout, values)

    def _short(self, layout, values):
        """Writes a struct; returns False, and writes nothing, where it holds too much for one piece."""
        size = self._size
        cost = self._cost
        self._row_items = _ROW_ITEMS
        try:
            self._struct(layout, values)
            return True
        except TooLong:
            self._size = size
            self._cost = cost
            if not cython.compiled:
                del self._data[size:]
            return False
        finally:
            self._row_items = _UNLIMITED

    def _struct(self, layout, values):
        values = _source(values)
        self._refuse(layout, values)
        for field in layout.fields:
            self._field(field, self._find(layout, field, values), False)
        self._tags(layout, values)

    def _refuse(self, layout, values):
        for field in layout.refused:
            if not self._is_default(field, self._find(layout, field, values)):
                raise UnsupportedVersion(f"this version of {layout.cls.__name__} has no field {field.name}")

    def _find(self, layout, field, values):
        if type(values) is dict:
            mapping: dict[str, Any] = values
            value = mapping.get(field.name, _MISSING)
        elif type(values) is layout.cls:
            return get_slot(values, field.offset) if cython.compiled else getattr(values, field.name)
        else:
            value = getattr(values, field.name, _MISSING)
        return _default(field) if value is _MISSING else value

    def _is_default(self, field, value):
        default = field.default
        if value is default:
            return True
        if default is not _MISSING:
            return (tuple(value) if type(value) is list else value) == default
        if value is None:
            return True
        values = _source(value)
        for inner in field.layout.fields + field.layout.tagged:
            if not self._is_default(inner, self._find(field.layout, inner, values)):
                return False
        return True

    def _field(self, field, value, tagged):
        if not field.is_array:
            self._value(field, value, tagged)
            return
        if value is None:
            if not field.nullable:
                raise UnsupportedVersion(f"{field.name} is null")
            self._put_length(-1, field.flexible, True)
            return
        count = len(value)
        self._row_items -= count
        self._cost += count * field.item_cost
        if self._row_items < 0:
            raise TooLong
        self._put_length(count, field.flexible, True)
        if field.layout is not None:
            for row in value:
                self._struct(field.layout, row)
        elif field.kind == _INT32:
            for row in value:
                self._number(_INT32, row)
        else:
            for row in value:
                self._value(field, row, False)

    def _tags(self, layout, values):
        """Tagged fields that differ from their default, after their number; each as tag, size, value."""
        if not layout.flexible:
            return
        start = self._size
        count = 0
        for field in layout.tagged:
            value = self._find(layout, field, values)
            if self._is_default(field, value):
                continue
            count += 1
            self._put_uvarint(field.tag)
            at = self._size
            self._field(field, value, True)
            self._insert_uvarint(at, self._size - at)
        if count == 0:
            self._put_byte(0)
        else:
            self._insert_uvarint(start, count)

    def _value(self, field, value, tagged):
        kind = field.kind
        if kind <= _NUMBERS:
            if kind == _BOOL:
                self._put_byte(1 if value else 0)
            else:
                self._number(kind, value)
            return
        nullable = field.nullable and not field.is_array
        if kind == _UUID:
            self._put_bytes((ZERO_UUID if value is None else value).int.to_bytes(16, "big"))
            return
        if kind == _STRUCT:
            if value is None:
                if not nullable:
                    raise UnsupportedVersion(f"{field.name} is null")
                self._put_byte(0 if tagged else 0xFF)
                return
            if nullable:
                self._put_byte(1)
            self._struct(field.layout, value)
            return
        if kind == _FLOAT64:
            self._put_bytes(_DOUBLE.pack(value))
            return
        if value is None:
            if not nullable:
                raise UnsupportedVersion(f"{field.name} is null")
            self._put_length(-1, field.flexible, kind != _STRING)
            return
        if kind == _STRING:
            self._string(field, value)
            return
        data = value if type(value) is bytes else bytes(value)
        self._put_length(len(data), field.flexible, True)
        self._put_bytes(data)

    def _string(self, field, value):
        if field.shortened and len(value) > ERROR_MESSAGE_LENGTH_MAX:
            value = value[:ERROR_MESSAGE_LENGTH_MAX] + "..."
        data = value.encode()
        if len(data) > _STRING_MAX:
            raise struct.error(f"{field.name} is a string of {len(data)} bytes")
        self._put_length(len(data), field.flexible, False)
        self._put_bytes(data)

    def _number(self, kind, value):
        if type(value) is not int and not isinstance(value, int):
            value = _whole(value)
        try:
            number = value
        except OverflowError:
            raise struct.error(f"{value} is no whole number of 64 bits") from None
        if kind in (_INT32, _ERROR, _INT16):
            limit = _TWO_31 if kind == _INT32 else 32768
            if number < -limit or number >= limit:
                raise struct.error(f"{number} is out of range")
            self._put_number(number, 4 if kind == _INT32 else 2)
        elif kind == _INT64:
            if not cython.compiled and not -_TWO_63 <= number < _TWO_63:
                raise struct.error(f"{number} is no whole number of 64 bits")
            self._put_number(number, 8)
        elif kind == _INT8:
            if number < -128 or number > 127:
                raise struct.error(f"{number} is out of range")
            self._put_number(number, 1)
        else:
            if number < 0 or number >= (65536 if kind == _UINT16 else _TWO_32):
                raise struct.error(f"{number} is out of range")
            self._put_number(number, 2 if kind == _UINT16 else 4)

    def _put_number(self, value, size):
        if cython.compiled:
            self._reserve(size)
            data = self._data + self._size
            shift = 8 * size
            if size == 4:
                data[0] = (value >> 24) & 0xFF
                data[1] = (value >> 16) & 0xFF
                data[2] = (value >> 8) & 0xFF
                data[3] = value & 0xFF
            else:
                for index in range(size):
                    shift -= 8
                    data[index] = (value >> shift) & 0xFF
            self._size += size
        else:
            self._put_bytes((value & ((1 << 8 * size) - 1)).to_bytes(size, "big"))

    def _put_length(self, length, flexible, wide):
        """The length of an array, of bytes or of a string; -1 for null."""
        if flexible:
            self._put_uvarint(length + 1)
        else:
            if length >= (_TWO_31 if wide else 32768):
                raise struct.error(f"a length of {length}")
            self._put_number(length, 4 if wide else 2)

    def _put_uvarint(self, value):
        while value > 0x7F:
            self._put_byte((value & 0x7F) | 0x80)
            value >>= 7
        self._put_byte(value)

    def _insert_uvarint(self, at, value):
        """Writes `value` before what is at `at`."""
        size = self._size - at
        start = self._size
        self._put_uvarint(value)
        width = self._size - start
        if cython.compiled:
            rotate(self._data + at, size, width)
        else:
            self._data[at:] = self._data[start:] + self._data[at:start]

    def _put_byte(self, value):
        if cython.compiled:
            self._reserve(1)
            self._data[self._size] = value
        else:
            self._data.append(value)
        self._size += 1

    def _put_bytes(self, data):
        length = len(data)
        if cython.compiled:
            self._reserve(length)
            memcpy(self._data + self._size, cython.cast(cython.p_char, PyBytes_AS_STRING(data)), length)
        else:
            self._data += data
        self._size += length

    def _reserve(self, more):
        if self._size + more > self._capacity:
            self._grow(self._size + more)

    def _grow(self, size):
        capacity = self._capacity * 2
        if capacity < size:
            capacity = size
        data = cython.cast(cython.p_uchar, PyMem_Realloc(self._data, capacity))
        if data == cython.NULL:
            raise MemoryError
        self._data = data
        self._capacity = capacity


def _whole(value):
    """A duration or a moment in milliseconds; -1 for no moment."""
    if value is None:
        return -1
    if isinstance(value, datetime):
        value = value - _EPOCH
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    raise TypeError(f"{value!r} is no whole number")


def _source(values):
    """Any mapping as a dict."""
    if type(values) is not dict and isinstance(values, Mapping):
        return dict(values)
    return values


def has_more_rows(values: Any, rows_max: int) -> bool:
    """Whether a message has more rows, those in rows included, than `rows_max`."""
    return _count_rows(values, rows_max) > rows_max


def _count_rows(values, rows_max):
    total = 0
    for value in values.values() if type(values) is dict or isinstance(values, Mapping) else ():
        if value is None or isinstance(value, (int, str, bytes, bytearray, memoryview)):
            continue
        if type(value) is list or type(value) is tuple or isinstance(value, Sequence):
            total += len(value)
            if total > rows_max:
                return total
            for row in value:
                if type(row) is dict or isinstance(row, Mapping):
                    total += _count_rows(row, rows_max - total)
                    if total > rows_max:
                        return total
        elif type(value) is dict:
            total += _count_rows(value, rows_max - total)
    return total
