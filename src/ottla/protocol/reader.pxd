# C types for `reader.py`; see there.
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8

from ottla.protocol.layout cimport Field, Layout, new_object, put_slot

cdef int _NUMBERS
cdef int _INT8, _INT16, _UINT16, _INT32, _UINT32, _INT64, _BOOL, _ERROR
cdef int _FLOAT64, _UUID, _STRING, _BYTES, _RECORDS, _STRUCT
cdef long long _TWO_31, _TWO_32, _UNLIMITED
cdef long long _TAGS_MAX, _STRING_MAX, _REPLACED_MAX, _STEP_COST, _ROW_ITEMS
cdef dict _ERRORS, _UUIDS
cdef object _DOUBLE, _MISSING


cdef _uuid_of(bytes data)
cdef _default(Field field)
cdef _new(cls)
cdef _put(target, Field field, value)


cdef class Reader:
    cdef Py_buffer _buffer
    cdef bint _held
    cdef unsigned char *_data
    cdef Py_ssize_t _end
    cdef readonly Py_ssize_t position
    cdef long long _items_left
    cdef long long _row_items
    cdef long long _cost

    cdef _release(self)
    @cython.locals(position=cython.Py_ssize_t, items_left=cython.longlong, cost=cython.longlong)
    cdef _short(self, Layout layout)
    @cython.locals(field=Field)
    cdef _struct(self, Layout layout)
    @cython.locals(field=Field, count=cython.longlong, tag=cython.longlong, length=cython.longlong, start=cython.Py_ssize_t, _=cython.longlong)
    cdef _rest(self, Layout layout, made)
    @cython.locals(count=cython.longlong, index=cython.Py_ssize_t, rows=tuple)
    cdef _array(self, Field field)
    @cython.locals(count=cython.longlong)
    cdef long long _count(self, Field field) except -2
    @cython.locals(start=cython.Py_ssize_t)
    cdef bint _is_null(self) except -1
    @cython.locals(kind=cython.int, number=cython.longlong, nullable=cython.bint, length=cython.longlong, start=cython.Py_ssize_t)
    cdef _value(self, Field field, bint tagged)
    @cython.locals(start=cython.Py_ssize_t)
    cdef Py_ssize_t _take(self, long long length) except -1
    cdef bytes _bytes(self, Py_ssize_t start, Py_ssize_t length)
    @cython.locals(start=cython.Py_ssize_t)
    cdef _text(self, long long length)
    @cython.locals(data=cython.p_uchar, position=cython.Py_ssize_t, left=cython.Py_ssize_t, value=cython.longlong, low=cython.longlong)
    cdef long long _number(self, int kind) except? -1
    @cython.locals(data=cython.p_uchar, value=cython.longlong, high=cython.longlong)
    cdef long long _int32(self, Py_ssize_t position) noexcept
    @cython.locals(value=cython.longlong)
    cdef long long _length(self, bint flexible, bint wide) except -2
    @cython.locals(data=cython.p_uchar, position=cython.Py_ssize_t, end=cython.Py_ssize_t, value=cython.longlong, byte=cython.longlong, shift=cython.int)
    cdef long long _uvarint(self) except -2
