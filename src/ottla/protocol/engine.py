# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Decodes and encodes every message of Kafka's protocol: requests, responses, records and snapshots.

A `Layout` says how one struct travels in one version; `schemas` makes layouts from Kafka's own definitions. The reader
fills the slots of the struct's class directly. It believes no length: a count is compared with the bytes that are left
before anything is allocated. As Kafka's decoder it takes any negative length for null, any byte but 0 for true, and
U+FFFD for bytes that are not UTF-8; it skips unknown tagged fields (KIP-482).

Long messages are decoded and encoded in steps (`Reader.steps`, `Writer.steps`): generators that yield the cost of what
they have done (`drivers/cooperative.py`). A row is tried in one piece first; one that holds too much is done again in steps.

Compiled, with C types in `engine.pxd`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Buffer

KINDS = {
    "int8": 1, "int16": 2, "uint16": 3, "int32": 4, "uint32": 5, "int64": 6, "bool": 7, "error": 8, "float64": 9,
    "uuid": 10, "string": 11, "bytes": 12, "records": 13, "struct": 14,
}  # fmt: skip
"""How values travel. The kinds up to `error` are whole numbers."""
SIZES = {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 8, 10: 16}
"""Bytes of a value of a kind, where all have the same."""
ELEMENTS_MAX = 200_000
"""Array items in one request or response, nested ones counted: the partitions of the largest clusters. A million would
keep all others waiting."""
TAGS_MAX = 10_000
"""More tagged fields than any client sends; a message that claims more is an attack on the parser."""
STRING_BYTES_MAX = 0x7FFF
"""Kafka's limit, also where the length is a varint: what is longer could not be said in older versions."""
ERROR_MESSAGE_LENGTH_MAX = 4_000
"""Characters: a message may repeat what it is about, and no string of more than 32767 bytes can be sent."""
UUIDS_MAX = 4_096
"""UUIDs that are remembered: topic ids recur, and to make a UUID costs more than to find it."""
ROW_COST = 5
"""Decoding or encoding a row, with the object that it becomes. A number or a string costs 1."""
STEP_COST = 250
"""Done in one piece: yielding has a cost too."""
ROW_ITEMS_MAX = 200
"""Array items in a row that is done in one piece."""

_NUMBERS = 8
_INT8, _INT16, _UINT16, _INT32, _UINT32, _INT64, _BOOL, _ERROR = range(1, 9)
_FLOAT64, _UUID, _STRING, _BYTES, _RECORDS, _STRUCT = range(9, 15)
_TWO_31 = 1 << 31
_TWO_32 = 1 << 32
_UNLIMITED = 1 << 62
_TAGS_MAX = TAGS_MAX
_STRING_MAX = STRING_BYTES_MAX
_REPLACED_MAX = STRING_BYTES_MAX // 3
"""U+FFFD takes three bytes: from here on a string that is not UTF-8 may become too long for older versions."""
_STEP_COST = STEP_COST
_ROW_COST = ROW_COST
_ROW_ITEMS = ROW_ITEMS_MAX
_MISSING = object()
_ERRORS = {int(each): each for each in ErrorCode}
_UUIDS: dict[bytes, UUID] = {bytes(16): ZERO_UUID}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLE = struct.Struct(">d")


class Malformed(ValueError):
    """Bytes that are no message of the claimed class and version."""


class UnsupportedVersion(ValueError):
    """A message holds a value that the version asked for has no field for, or null where it may not be."""


class _TooLong(Exception):
    """A row is not for one piece."""


class Field:
    """One field of a struct in one version."""

    def __init__(
        self, name: str, kind: str, *, is_array: bool, nullable: bool, default: Any, layout: Any, flexible: bool,
        tag: int = -1,
    ) -> None:  # fmt: skip
        """`layout` is that of the struct, or of an array's structs. `flexible`: a length is a varint."""
        self.name = name
        self.kind = KINDS[kind]
        self.is_array = is_array
        self.nullable = nullable
        self.default = default
        self.layout = layout
        self.flexible = flexible
        self.tag = tag
        self.shortened = name == "error_message"
        self.item_cost = ROW_COST if layout is not None else 1
        self.item_bytes_min = layout.bytes_min if layout is not None else SIZES.get(self.kind, 1)
        if kind == "string" and not flexible:
            self.item_bytes_min = 2
        elif kind in ("bytes", "records") and not flexible:
            self.item_bytes_min = 4


class Layout:
    """How a struct of class `cls` travels in one version: its fields in order, those with tags, and those that the
    version does not have, with what they are then."""

    def __init__(
        self, cls: type, fields: Iterable[Field], tagged: Iterable[Field], absent: Iterable[Field],
        refused: Iterable[Field], flexible: bool,
    ) -> None:  # fmt: skip
        """`refused` are the absent fields that must have their default when the struct is written."""
        self.cls = cls
        self.fields = list(fields)
        self.tagged = sorted(tagged, key=lambda field: field.tag)
        self.absent = list(absent)
        self.refused = list(refused)
        self.flexible = flexible
        self.by_tag = {field.tag: field for field in self.tagged}
        self.has_arrays = any(
            field.is_array or (field.layout is not None and field.layout.has_arrays)
            for field in [*self.fields, *self.tagged]
        )
        self.bytes_min = int(flexible)
        for field in self.fields:
            if field.is_array:
                self.bytes_min += 1 if field.flexible else 4
            elif field.nullable and field.layout is not None:
                self.bytes_min += 1
            else:
                self.bytes_min += field.item_bytes_min
            _locate(self, field)
        for field in [*self.tagged, *self.absent]:
            _locate(self, field)


def _locate(layout, field):
    """Where the field is in an object of the class."""
    if cython.compiled:
        field.offset = slot_offset(getattr(layout.cls, field.name))
        if field.offset < 0:
            raise TypeError(f"{layout.cls.__name__}.{field.name} is no slot")


def _put(target, field, value):
    if cython.compiled:
        put_slot(target, field.offset, value)
    else:
        setattr(target, field.name, value)


def _get(source, field):
    if cython.compiled:
        return get_slot(source, field.offset)
    return getattr(source, field.name)


def _new(cls):
    if cython.compiled:
        return new_object(cls)
    return cls.__new__(cls)


def _default(field):
    """The value of a field that is not there."""
    if field.kind == _STRUCT and field.default is _MISSING:
        return of_defaults(field.layout)
    return field.default


def of_defaults(layout):
    """An object of which every field has its default."""
    made = _new(layout.cls)
    for field in layout.fields:
        _put(made, field, _default(field))
    for field in layout.tagged:
        _put(made, field, _default(field))
    for field in layout.absent:
        _put(made, field, _default(field))
    return made


MISSING = _MISSING
"""The default of a struct that is not null: one of defaults."""


def _uuid_of(data):
    found = _UUIDS.get(data)
    if found is None:
        if len(_UUIDS) >= UUIDS_MAX:
            _UUIDS.clear()
            _UUIDS[bytes(16)] = ZERO_UUID
        found = _UUIDS[data] = UUID(bytes=data)
    return found


class Reader:
    """Reads structs from `frame`, from `position` on. Raises Malformed at bytes that are not what they should be."""

    def __init__(self, frame: Buffer, position: int = 0, items_max: int = ELEMENTS_MAX) -> None:
        if cython.compiled:
            PyObject_GetBuffer(frame, cython.address(self._buffer), PyBUF_SIMPLE)
            self._held = True
            self._data = cython.cast(cython.p_uchar, self._buffer.buf)
            self._end = self._buffer.len
        else:
            self._data = memoryview(frame)
            self._end = len(frame)
        self.position = position
        self._items_left = items_max
        self._row_items = _UNLIMITED
        self._cost = 0

    def __dealloc__(self) -> None:
        self._release()

    def _release(self):
        if cython.compiled and self._held:
            self._held = False
            PyBuffer_Release(cython.address(self._buffer))

    @property
    def left(self) -> int:
        """Bytes behind what was read."""
        return self._end - self.position

    def read(self, layout: Layout) -> Any:
        """The struct at `position`, which moves behind it."""
        return self._struct(layout)

    def steps(self, layout: Layout) -> Generator[int, None, Any]:
        """What `read` gives; yields the cost of what was read."""
        made = _new(layout.cls)
        for field in layout.fields:
            if field.is_array:
                count = self._count(field)
                if count < 0:
                    _put(made, field, None)
                    continue
                rows: list[Any] = []
                for _ in range(count):
                    if field.layout is None:
                        rows.append(self._value(field, False))
                    else:
                        row = self._short(field.layout)
                        if row is None:
                            row = yield from self.steps(field.layout)
                        rows.append(row)
                    self._cost += field.item_cost
                    if self._cost >= _STEP_COST:
                        cost = self._cost
                        self._cost = 0
                        yield cost
                _put(made, field, tuple(rows))
            elif field.layout is not None and field.layout.has_arrays:
                if field.nullable and self._is_null():
                    _put(made, field, None)
                else:
                    _put(made, field, (yield from self.steps(field.layout)))
            else:
                _put(made, field, self._value(field, False))
        self._rest(layout, made)
        return made

    def _short(self, layout):
        """The struct, or None for one that holds too much for one piece: nothing of it is read then."""
        position = self.position
        items_left = self._items_left
        self._row_items = _ROW_ITEMS
        try:
            return self._struct(layout)
        except _TooLong:
            self.position = position
            self._items_left = items_left
            return None
        finally:
            self._row_items = _UNLIMITED

    def _struct(self, layout):
        made = _new(layout.cls)
        for field in layout.fields:
            _put(made, field, self._array(field) if field.is_array else self._value(field, False))
        self._rest(layout, made)
        return made

    def _rest(self, layout, made):
        """Fields that the version does not have, and tagged ones."""
        for field in layout.absent:
            _put(made, field, _default(field))
        if not layout.flexible:
            return
        for field in layout.tagged:
            _put(made, field, _default(field))
        count = self._uvarint()
        if count == 0:
            return
        if count > _TAGS_MAX:
            raise Malformed(f"{count} tagged fields")
        for _ in range(count):
            tag = self._uvarint()
            length = self._uvarint()
            start = self._take(length)
            known = layout.by_tag.get(tag)
            if known is None:
                continue
            self.position = start
            field = known
            _put(made, field, self._array(field) if field.is_array else self._value(field, True))
            if self.position != start + length:
                raise Malformed(f"tagged field {field.name} is not as long as it says")

    def _array(self, field):
        count = self._count(field)
        if count < 0:
            return None
        if count == 0:
            return ()
        self._row_items -= count
        if self._row_items < 0:
            raise _TooLong
        if cython.compiled:
            rows = PyTuple_New(count)
            for index in range(count):
                item = self._value(field, False) if field.layout is None else self._struct(field.layout)
                Py_INCREF(item)
                PyTuple_SET_ITEM(rows, index, item)
            return rows
        if field.layout is None:
            return tuple([self._value(field, False) for _ in range(count)])
        return tuple([self._struct(field.layout) for _ in range(count)])

    def _count(self, field):
        """The number of an array's items, no more than fit into the rest; -1 for null."""
        count = self._length(field.flexible, True)
        if count < 0:
            if not field.nullable:
                raise Malformed(f"{field.name} is null")
            return -1
        if count * field.item_bytes_min > self._end - self.position:
            raise Malformed(f"an array of {count} items in {self._end - self.position} bytes")
        self._items_left -= count
        if self._items_left < 0:
            raise Malformed("too many array items")
        return count

    def _is_null(self):
        """Whether a struct that may be null is: a byte before it says so."""
        start = self._take(1)
        return self._data[start] > 0x7F

    def _value(self, field, tagged):
        """A value that is no array, or one item of one."""
        kind = field.kind
        if kind <= _NUMBERS:
            number = self._number(kind)
            if kind == _BOOL:
                return number != 0
            if kind == _ERROR:
                return _ERRORS.get(number, number)
            return number
        nullable = field.nullable and not field.is_array
        if kind == _STRING:
            length = self._length(field.flexible, False)
            if length < 0:
                if not nullable:
                    raise Malformed(f"{field.name} is null")
                return None
            return self._text(length)
        if kind == _UUID:
            start = self._take(16)
            return _uuid_of(self._bytes(start, 16))
        if kind == _STRUCT:
            if nullable and (self._uvarint() == 0 if tagged else self._is_null()):
                return None
            return self._struct(field.layout)
        if kind == _FLOAT64:
            start = self._take(8)
            return _DOUBLE.unpack(self._bytes(start, 8))[0]
        length = self._length(field.flexible, True)
        if length < 0:
            if not nullable:
                raise Malformed(f"{field.name} is null")
            return None
        start = self._take(length)
        return self._bytes(start, length)

    def _take(self, length):
        """Where `length` bytes begin, which are behind `position` then."""
        start = self.position
        if length > self._end - start:
            raise Malformed(f"{length} bytes where {self._end - start} are left")
        self.position = start + length
        return start

    def _bytes(self, start, length):
        if cython.compiled:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._data + start), length)
        return bytes(self._data[start : start + length])

    def _text(self, length):
        if length == 0:
            return ""
        if length > _STRING_MAX:
            raise Malformed(f"a string of {length} bytes")
        start = self._take(length)
        if cython.compiled:
            text = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, self._data + start), length, b"replace")
        else:
            text = str(self._data[start : start + length], "utf-8", "replace")
        if length > _REPLACED_MAX and len(text.encode()) > _STRING_MAX:
            raise Malformed("a long string that is not UTF-8")
        return text

    def _number(self, kind):
        data = self._data
        position = self.position
        left = self._end - position
        if kind == _INT32 or kind == _UINT32:
            if left >= 4:
                self.position = position + 4
                value = self._int32(position)
                return value + _TWO_32 if kind == _UINT32 and value < 0 else value
        elif kind == _INT64:
            if left >= 8:
                self.position = position + 8
                low = self._int32(position + 4)
                return self._int32(position) * _TWO_32 + (low if low >= 0 else low + _TWO_32)
        elif kind == _INT8 or kind == _BOOL:
            if left >= 1:
                self.position = position + 1
                value = data[position]
                return value - 256 if value > 127 else value
        elif left >= 2:
            self.position = position + 2
            value = (data[position] << 8) | data[position + 1]
            return value - 65536 if value > 32767 and kind != _UINT16 else value
        raise Malformed(f"a number where {left} bytes are left")

    def _int32(self, position):
        data = self._data
        high = data[position]
        value = (high << 24) | (data[position + 1] << 16) | (data[position + 2] << 8) | data[position + 3]
        return value - _TWO_32 if value >= _TWO_31 else value

    def _length(self, flexible, wide):
        """A length; -1 for null, which any negative one is."""
        if flexible:
            if self.position < self._end:
                value = self._data[self.position]
                if value < 0x80:
                    self.position += 1
                    return value - 1
            value = self._uvarint() - 1
            return value if value < _TWO_31 else -1
        value = self._number(_INT32 if wide else _INT16)
        return value if value >= 0 else -1

    def _uvarint(self):
        data = self._data
        position = self.position
        end = self._end
        value = 0
        shift = 0
        while position < end:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return value % _TWO_32
            shift += 7
            if shift > 28:
                raise Malformed("a varint longer than 5 bytes")
        raise Malformed("a varint where no bytes are left")


class Writer:
    """Writes structs behind `head`: objects of their class, mappings, or others with attributes of those names.

    What a mapping lacks has its default, and what the version lacks is left out. Raises UnsupportedVersion, and
    struct.error for a number or length out of range.
    """

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

    def steps(self, layout: Layout, values: Any) -> Generator[int, None, None]:
        """Like `write`; yields the cost of what was written."""
        values = _source(values)
        self._refuse(layout, values)
        for field in layout.fields:
            value = self._find(layout, field, values)
            if field.is_array and value is not None:
                rows = _rows(value)
                self._put_length(len(rows), field.flexible, True)
                for row in rows:
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
        self._row_items = _ROW_ITEMS
        try:
            self._struct(layout, values)
            return True
        except _TooLong:
            self._size = size
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
            if not _is_default(field, self._find(layout, field, values)):
                raise UnsupportedVersion(f"this version of {layout.cls.__name__} has no field {field.name}")

    def _find(self, layout, field, values):
        if type(values) is dict:
            mapping: dict[str, Any] = values
            value = mapping.get(field.name, _MISSING)
        elif type(values) is layout.cls:
            return _get(values, field)
        else:
            value = getattr(values, field.name, _MISSING)
        return _default(field) if value is _MISSING else value

    def _field(self, field, value, tagged):
        if not field.is_array:
            self._value(field, value, tagged)
            return
        if value is None:
            if not field.nullable:
                raise UnsupportedVersion(f"{field.name} is null")
            self._put_length(-1, field.flexible, True)
            return
        rows = _rows(value)
        self._row_items -= len(rows)
        if self._row_items < 0:
            raise _TooLong
        self._put_length(len(rows), field.flexible, True)
        if field.layout is None:
            for row in rows:
                self._value(field, row, False)
        else:
            for row in rows:
                self._struct(field.layout, row)

    def _tags(self, layout, values):
        """Tagged fields that differ from their default, after their number; each as tag, size, value."""
        if not layout.flexible:
            return
        start = self._size
        count = 0
        for field in layout.tagged:
            value = self._find(layout, field, values)
            if _is_default(field, value):
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
        text = value
        if field.shortened and len(text) > ERROR_MESSAGE_LENGTH_MAX:
            text = text[:ERROR_MESSAGE_LENGTH_MAX] + "..."
        data = text.encode()
        if len(data) > _STRING_MAX:
            raise struct.error(f"{field.name} is a string of {len(data)} bytes")
        self._put_length(len(data), field.flexible, False)
        self._put_bytes(data)

    def _number(self, kind, value):
        try:
            number = value
        except (TypeError, OverflowError):
            number = _whole(value)
        if kind == _INT32 or kind == _ERROR or kind == _INT16:
            limit = _TWO_31 if kind == _INT32 else 32768
            if number < -limit or number >= limit:
                raise struct.error(f"{number} is out of range")
            self._put_number(number, 4 if kind == _INT32 else 2)
        elif kind == _INT64:
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
    raise struct.error(f"{value!r} is no whole number of 64 bits")


def _rows(value):
    """A sequence as what is quick to iterate."""
    return value if type(value) is tuple or type(value) is list else tuple(value)


def _source(values):
    """Any mapping as a dict."""
    if type(values) is not dict and isinstance(values, Mapping):
        return dict(values)
    return values


def _is_default(field, value):
    default = field.default
    if value is default:
        return True
    if default is _MISSING:
        return value == of_defaults(field.layout)
    if type(value) is list:
        return tuple(value) == default
    return value == default


def is_long(values: Any, rows_max: int) -> bool:
    """Whether a message has more rows, those in rows included, than `rows_max`."""
    return _count_rows(values, rows_max) > rows_max


def _count_rows(values, rows_max):
    total = 0
    for value in values.values() if isinstance(values, Mapping) else ():
        if type(value) is list or type(value) is tuple or (
            isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
        ):
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
