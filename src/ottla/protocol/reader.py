# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Reads every message of Kafka's protocol: requests, responses, records and snapshots.

The reader fills the slots of a struct's class directly. It believes no length: a count is compared with the bytes that
are left before anything is allocated. As Kafka's decoder it takes any negative length for null, any byte but 0 for
true, and U+FFFD for bytes that are not UTF-8; it skips unknown tagged fields (KIP-482).

`Reader.steps` is for long messages: a generator that yields the cost of what it has done (`drivers/cooperative.py`). A
row is tried in one piece first; one that holds too much is read again in steps.

Compiled, with C types in `reader.pxd`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any
from uuid import UUID

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Buffer
from ottla.protocol import layout as layouts
from ottla.protocol.layout import Field, Layout, Malformed, TooLong, of_defaults

UUIDS_MAX = 4_096
"""UUIDs that are remembered: topic ids recur, and to make a UUID costs more than to find it."""

# C globals when compiled.
_TWO_31 = 1 << 31
_UINT32_MAX = (1 << 32) - 1
_UNLIMITED = 1 << 62
_TAGS_MAX = layouts.TAGS_MAX
_TAGGED_MAX = layouts.TAGGED_ARRAY_BYTES_MAX
_STRING_MAX = layouts.STRING_BYTES_MAX
_REPLACED_MAX = layouts.STRING_BYTES_MAX // 3
"""U+FFFD takes three bytes: from here on a string that is not UTF-8 may become too long for older versions."""
_ITEMS_MAX = layouts.ELEMENTS_MAX
_STEP_COST = layouts.STEP_COST
_ROW_ITEMS = layouts.ROW_ITEMS_MAX
_CODES_END = 256
_UUIDS: dict[bytes, UUID] = {bytes(16): ZERO_UUID}
_MISSING = layouts.MISSING
_DOUBLE = struct.Struct(">d")
if not cython.compiled:  # `layout.pxd` has them else
    _INT8, _INT16, _UINT16, _INT32, _UINT32, _INT64, _BOOL, _ERROR = range(1, 9)
    _FLOAT64, _UUID, _STRING, _BYTES, _RECORDS, _STRUCT = range(9, 15)


def _codes() -> tuple[int, ...]:
    known = {int(each): each for each in ErrorCode}
    return tuple([known.get(number, number) for number in range(-1, _CODES_END)])


_CODES = _codes()
"""Error codes from -1 on."""


def _uuid_of(data):
    found = _UUIDS.get(data)
    if found is None:
        if len(_UUIDS) >= UUIDS_MAX:
            _UUIDS.clear()
            _UUIDS[bytes(16)] = ZERO_UUID
        found = _UUIDS[data] = UUID(bytes=data)
    return found


def _new(cls):
    if cython.compiled:
        return new_object(cls)
    else:  # or Cython warns of code that is not reached
        return cls.__new__(cls)


def _put(target, field, value):
    if cython.compiled:
        put_slot(target, field.offset, value)
    else:
        object.__setattr__(target, field.name, value)  # of records that are frozen too


def _default(field):
    """The value of a field that is not there."""
    return of_defaults(field.layout) if field.default is _MISSING else field.default


def read_struct(layout: Layout, frame: Buffer, position: int = 0) -> Any:
    """The struct at `position` of a frame. Raises Malformed."""
    reader: Any = Reader.__new__(Reader)
    reader._open(frame, position, _ITEMS_MAX)
    return reader._struct(layout)


def read_request(layout: Layout, frame: Buffer, position: int, row_items_max: int = _UNLIMITED) -> Any:
    """What `read_struct` gives, with records that are slices of `frame`, views of a memoryview. Raises TooLong where
    arrays have more items than `row_items_max`."""
    reader: Any = Reader.__new__(Reader)
    reader._open(frame, position, _ITEMS_MAX)
    reader._frame = frame
    reader._row_items = row_items_max
    return reader._struct(layout)


def read_record(layout: Layout, data: Buffer, position: int = 0, items_max: int = 0) -> tuple[Any, int]:
    """The struct at `position` and the position behind it: one of the broker's own, with as many array items as there
    are bytes, or a client's with at most `items_max`. Raises Malformed."""
    reader: Any = Reader.__new__(Reader)
    reader._open(data, position, items_max or len(data))
    made = reader._struct(layout)
    return made, reader.position


class Reader:
    """Reads structs from `frame`, from `position` on. Raises Malformed at bytes that are not what they should be."""

    __slots__ = (
        "_buffer",
        "_cost",
        "_data",
        "_end",
        "_frame",
        "_held",
        "_int32s",
        "_int32s_start",
        "_items_left",
        "_row_items",
        "position",
    )

    def __init__(
        self, frame: Buffer, position: int = 0, items_max: int = layouts.ELEMENTS_MAX, *, slices_records: bool = False
    ) -> None:
        """`slices_records`: records are slices of the frame, not copies."""
        self._open(frame, position, items_max)
        if slices_records:
            self._frame = frame

    def _open(self, frame, position, items_max):
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
        self._int32s = None
        self._frame = None

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

    @cython.locals(layout=Layout, field=Field)
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
        cost = self._cost
        self._row_items = _ROW_ITEMS
        try:
            return self._struct(layout)
        except TooLong:
            self.position = position
            self._items_left = items_left
            self._cost = cost
            return None
        finally:
            self._row_items = _UNLIMITED

    def _struct(self, layout):
        made = _new(layout.cls)
        for field in layout.fields:
            if field.is_array:
                value = self._array(field)
            elif field.kind == _INT32:
                value = self._number(4)
            elif field.kind == _INT64:
                value = self._number(8)
            else:
                value = self._value(field, False)
            _put(made, field, value)
        if layout.plain and self.position < self._end and self._data[self.position] == 0:
            self.position += 1
        else:
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
            known = layout.by_tag.get(tag)
            if known is not None and length > self._end - self.position:
                raise Malformed(
                    f"tagged field {known.name} of {length} bytes where {self._end - self.position} are left"
                )
            start = self._take(length)
            if known is None:
                continue
            self.position = start
            field = known
            if field.is_array and length > _TAGGED_MAX:
                raise Malformed(f"tagged field {field.name} has {length} bytes")
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
        self._cost += count * field.item_cost
        if self._row_items < 0:
            raise TooLong
        if field.kind == _INT32:
            return self._int32_array(count)
        if cython.compiled:
            rows = new_tuple(count)
            for index in range(count):
                item = self._struct(field.layout) if field.kind == _STRUCT else self._value(field, False)
                Py_INCREF(item)
                PyTuple_SET_ITEM(rows, index, item)
            return rows
        elif field.layout is None:
            return tuple([self._value(field, False) for _ in range(count)])
        else:
            return tuple([self._struct(field.layout) for _ in range(count)])

    def _int32_array(self, count):
        """The tuple of the array before serves again where the bytes are the same: an ISR mostly is its replicas."""
        start = self._take(4 * count)
        if not cython.compiled:
            return struct.unpack_from(f">{count}i", self._data, start)
        before = self._int32s
        if before is not None and PyTuple_GET_SIZE(before) == count:
            same = memcmp(self._data + start, self._data + self._int32s_start, 4 * count)
            if same == 0:
                return before
        rows = new_tuple(count)
        for index in range(count):
            item = big_endian(self._data + start + 4 * index, 4)
            Py_INCREF(item)
            PyTuple_SET_ITEM(rows, index, item)
        self._int32s = rows
        self._int32s_start = start
        return rows

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
        if kind == _INT32:
            return self._number(4)
        if kind == _STRING:
            length = self._length(field.flexible, False)
            if length >= 0:
                return self._text(length)
        elif kind == _STRUCT:
            if field.nullable and not field.is_array and (self._uvarint() == 0 if tagged else self._is_null()):
                return None
            return self._struct(field.layout)
        elif kind in (_BYTES, _RECORDS):
            length = self._length(field.flexible, True)
            if length >= 0:
                start = self._take(length)
                if kind == _RECORDS and self._frame is not None:
                    return self._frame[start : start + length]
                return self._bytes(start, length)
        else:
            return self._scalar(kind)
        if not field.nullable or field.is_array:
            raise Malformed(f"{field.name} is null")
        return None

    def _scalar(self, kind):
        """A value whose size is its kind's."""
        if kind == _INT64:
            return self._number(8)
        if kind == _ERROR:
            number = self._number(2)
            return _CODES[number + 1] if -1 <= number < _CODES_END else number
        if kind == _INT16:
            return self._number(2)
        if kind == _BOOL:
            return self._number(1) != 0
        if kind == _INT8:
            return self._number(1)
        if kind == _UINT16:
            return self._number(2) & 0xFFFF
        if kind == _UINT32:
            return self._number(4) & _UINT32_MAX
        if kind == _UUID:
            start = self._take(16)
            return _uuid_of(self._bytes(start, 16))
        start = self._take(8)
        return _DOUBLE.unpack(self._bytes(start, 8))[0]

    def _number(self, size):
        """A number of so many bytes, with its sign."""
        start = self._take(size)
        if cython.compiled:
            return big_endian(self._data + start, size)
        else:
            return int.from_bytes(self._data[start : start + size], "big", signed=True)

    def _take(self, length):
        """Where `length` bytes begin, which are behind `position` then."""
        start = self.position
        if length > self._end - start:
            self._lacks(length)
        self.position = start + length
        return start

    def _lacks(self, length):
        """Separate, so that the C compiler can inline `_take`."""
        raise Malformed(f"{length} bytes where {self._end - self.position} are left")

    def _bytes(self, start, length):
        if cython.compiled:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._data + start), length)
        else:
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
        value = self._number(4 if wide else 2)
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
                return value & _UINT32_MAX
            shift += 7
            if shift > 28:
                raise Malformed("a varint longer than 5 bytes")
        raise Malformed("a varint where no bytes are left")
