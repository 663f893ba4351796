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

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol import layout as layouts
from ottla.protocol.layout import Field, Layout, TooLong, UnsupportedVersion, of_defaults

ERROR_MESSAGE_LENGTH_MAX = 4_000
"""Characters: a message may repeat what it is about, and no string of more than 32767 bytes can be sent."""

COPIED_BYTES_MAX = 4_096
"""Fewer bytes of records are copied into the part before them."""

# C globals when compiled.
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
if not cython.compiled:  # `layout.pxd` has them else
    _INT8, _INT16, _UINT16, _INT32, _UINT32, _INT64, _BOOL, _ERROR = range(1, 9)
    _FLOAT64, _UUID, _STRING, _BYTES, _RECORDS, _STRUCT = range(9, 15)


def _default(field):
    """The value of a field that is not there."""
    return of_defaults(field.layout) if field.default is _MISSING else field.default


def write_struct(layout: Layout, values: Any, head: bytes = b"") -> bytes:
    """A struct behind `head`; see `Writer`."""
    writer: Any = Writer.__new__(Writer)
    writer._open(head)
    writer._struct(layout, values)
    data: bytes = writer.done()
    return data


def write_parts(layout: Layout, values: Any, head: bytes = b"") -> list[Buffer]:
    """What `write_struct` gives in parts, in which long records are not copied."""
    writer: Any = Writer.__new__(Writer)
    writer._open(head)
    writer._parts = parts = []
    writer._struct(layout, values)
    parts.append(writer.done())
    return parts


class Writer:
    """Writes structs behind `head`: objects of their class, mappings, or others with attributes of those names.

    What a mapping lacks has its default, and what the version lacks is left out. Raises UnsupportedVersion, and
    struct.error for a number or length out of range.
    """

    __slots__ = ("_capacity", "_cost", "_data", "_long", "_parts", "_row_items", "_short_data", "_size")

    def __init__(self, head: bytes = b"") -> None:
        self._open(head)

    def _open(self, head):
        if cython.compiled:
            self._capacity = _BUFFER_BYTES
            self._data = self._short_data
        else:
            self._data = bytearray()
        self._size = 0
        self._row_items = _UNLIMITED
        self._cost = 0
        self._parts = None
        self._put_bytes(head)

    def __dealloc__(self) -> None:
        if cython.compiled:
            Py_XDECREF(self._long)

    def done(self) -> bytes:
        """What was written; the writer has nothing after that."""
        size = self._size
        data = self._data
        self._size = 0
        if not cython.compiled:
            self._data = bytearray()
            return bytes(data)
        self._data = self._short_data
        self._capacity = _BUFFER_BYTES
        if self._long == cython.NULL:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, data), size)
        return taken(cython.address(self._long), size)

    def write(self, layout: Layout, values: Any) -> None:
        self._struct(layout, values)

    @cython.locals(layout=Layout, field=Field)
    def steps(self, layout: Layout, values: Any) -> Generator[int, None, None]:
        """Like `write`; yields the cost of what was written."""
        values = _source(layout, values)
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
            elif field.is_array:
                self._array(field, value)
            else:
                self._value(field, value, False)
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
        values = _source(layout, values)
        if layout.refused:
            self._refuse(layout, values)
        for field in layout.fields:
            value = self._find(layout, field, values)
            if field.is_array:
                self._array(field, value)
            else:
                self._value(field, value, False)
        if layout.tagged:
            self._tags(layout, values)
        elif layout.flexible:
            self._put_byte(0)

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
        values = _source(field.layout, value)
        for inner in field.layout.fields + field.layout.tagged:
            if not self._is_default(inner, self._find(field.layout, inner, values)):
                return False
        return True

    def _array(self, field, value):
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
        kind = field.kind
        if kind == _STRUCT:
            layout = field.layout
            for row in value:
                self._struct(layout, row)
        elif kind == _INT32:
            for row in value:
                self._int32(row)
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
            if field.is_array:
                self._array(field, value)
            else:
                self._value(field, value, True)
            self._insert_uvarint(at, self._size - at)
        if count == 0:
            self._put_byte(0)
        else:
            self._insert_uvarint(start, count)

    def _value(self, field, value, tagged):
        kind = field.kind
        if kind == _INT32:
            self._int32(value)
        elif kind == _BOOL:
            self._put_byte(1 if value else 0)
        elif kind <= _ERROR:
            self._number(kind, value)
        elif kind == _UUID:
            self._uuid((ZERO_UUID if value is None else value).int)
        elif kind == _FLOAT64:
            self._put_bytes(_DOUBLE.pack(value))
        elif value is None:
            if not field.nullable or field.is_array:
                raise UnsupportedVersion(f"{field.name} is null")
            if kind == _STRUCT:
                self._put_byte(0 if tagged else 0xFF)
            else:
                self._put_length(-1, field.flexible, kind != _STRING)
        elif kind == _STRING:
            self._string(field, value)
        elif kind == _STRUCT:
            if field.nullable and not field.is_array:
                self._put_byte(1)
            self._struct(field.layout, value)
        elif kind == _RECORDS and self._parts is not None and len(value) > COPIED_BYTES_MAX:
            self._put_length(len(value), field.flexible, True)
            self._parts += (self.done(), value)
        else:
            data = value if type(value) is bytes else bytes(value)
            self._put_length(len(data), field.flexible, True)
            self._put_bytes(data)

    def _string(self, field, value):
        if field.shortened and len(value) > ERROR_MESSAGE_LENGTH_MAX:
            value = value[:ERROR_MESSAGE_LENGTH_MAX] + "..."
        if cython.compiled:
            length = 0
            text = PyUnicode_AsUTF8AndSize(value, cython.address(length))
        else:
            text = value.encode()
            length = len(text)
        if length > _STRING_MAX:
            raise struct.error(f"{field.name} is a string of {length} bytes")
        self._put_length(length, field.flexible, False)
        if cython.compiled:
            self._reserve(length)
            memcpy(self._data + self._size, text, length)
            self._size += length
        else:
            self._put_bytes(text)

    def _uuid(self, number):
        if cython.compiled:
            self._reserve(16)
            put_uuid(self._data + self._size, number)
            self._size += 16
        else:
            self._put_bytes(number.to_bytes(16, "big"))

    def _int32(self, value):
        if cython.compiled:
            self._reserve(4)
        if cython.compiled and put_int32(self._data + self._size, value):
            self._size += 4
        else:
            self._number(_INT32, value)

    def _number(self, kind, value):
        if type(value) is not int and not isinstance(value, int):
            value = _whole(value)
        if cython.compiled:
            overflow = 0
            number = PyLong_AsLongLongAndOverflow(value, cython.address(overflow))
        else:
            number = value
            overflow = not -_TWO_63 <= number < _TWO_63
        if overflow:
            raise struct.error(f"{value} is no whole number of 64 bits")
        if kind == _INT32:
            if number < -_TWO_31 or number >= _TWO_31:
                raise struct.error(f"{number} is out of range")
            self._put_number(number, 4)
        elif kind == _INT64:
            self._put_number(number, 8)
        elif kind in (_INT16, _ERROR):
            if number < -32768 or number > 32767:
                raise struct.error(f"{number} is out of range")
            self._put_number(number, 2)
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
            put_big_endian(self._data + self._size, value, size)
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
        """Makes room for `size` bytes: in the bytes that `done` gives."""
        capacity = max(2 * self._capacity, size, 1024)
        if self._long == cython.NULL:
            data = PyBytes_FromStringAndSize(cython.NULL, capacity)
            memcpy(PyBytes_AS_STRING(data), self._data, self._size)
            Py_INCREF(data)
            self._long = cython.cast(cython.pointer(PyObject), data)
        else:
            written = self._size
            self._size = 0
            self._data = self._short_data  # what is left if the memory cannot be had
            self._capacity = _BUFFER_BYTES
            _PyBytes_Resize(cython.address(self._long), capacity)
            self._size = written
        self._data = cython.cast(cython.p_uchar, PyBytes_AS_STRING(cython.cast(bytes, self._long)))
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


def _source(layout, values):
    """Any mapping as a dict."""
    cls = type(values)
    if cls is dict or cls is layout.cls or cls is layout.other:
        return values
    if isinstance(values, Mapping):
        return dict(values)
    layout.other = cls
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
