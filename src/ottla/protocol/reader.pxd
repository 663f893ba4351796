# C types for `reader.py`; see there.
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from ottla.protocol.layout cimport (
    _BOOL,
    _BYTES,
    _ERROR,
    _FLOAT64,
    _INT8,
    _INT16,
    _INT32,
    _INT64,
    _RECORDS,
    _STRING,
    _STRUCT,
    _UINT16,
    _UINT32,
    _UUID,
    Field,
    Layout,
    new_object,
    put_slot,
)

cdef extern from *:
    """
    /* Like `new_object`. */
    static CYTHON_INLINE PyObject *new_tuple(Py_ssize_t size) {
        PyObject *made = PyTuple_New(size);
        if (made != NULL) PyObject_GC_UnTrack(made);
        return made;
    }
    static CYTHON_INLINE long long big_endian(const unsigned char *data, int size) {
        unsigned long long value;
        if (size == 4)
            return (int)((unsigned)data[0] << 24 | (unsigned)data[1] << 16 | (unsigned)data[2] << 8 | data[3]);
        if (size == 1) return (signed char)data[0];
        if (size == 2) return (short)((unsigned)data[0] << 8 | data[1]);
        memcpy(&value, data, 8);
        return (long long)__builtin_bswap64(value);
    }
    """
    tuple new_tuple(Py_ssize_t size)
    long long big_endian(const unsigned char *data, int size)

cdef long long _TWO_31, _UINT32_MAX, _UNLIMITED, _CODES_END
cdef long long _TAGS_MAX, _TAGGED_MAX, _STRING_MAX, _REPLACED_MAX, _STEP_COST, _ROW_ITEMS, _ITEMS_MAX
cdef dict _UUIDS
cdef tuple _CODES
cdef object _DOUBLE, _MISSING


cdef _uuid_of(bytes data)
cdef _default(Field field)
cdef _new(cls)
cdef _put(target, Field field, value)

@cython.locals(reader=Reader)
cpdef read_struct(Layout layout, frame, Py_ssize_t position=*)
@cython.locals(reader=Reader)
cpdef read_request(Layout layout, frame, Py_ssize_t position, long long row_items_max=*)
@cython.locals(reader=Reader)
cpdef tuple read_record(Layout layout, data, Py_ssize_t position=*, long long items_max=*)


@cython.final
@cython.freelist(8)
cdef class Reader:
    cdef Py_buffer _buffer
    cdef bint _held
    cdef unsigned char *_data
    cdef Py_ssize_t _end
    cdef readonly Py_ssize_t position
    cdef long long _items_left
    cdef long long _row_items
    cdef long long _cost
    cdef object _frame
    cdef tuple _int32s
    cdef Py_ssize_t _int32s_start

    cdef _open(self, frame, Py_ssize_t position, long long items_max)
    cdef _release(self)
    @cython.locals(position=cython.Py_ssize_t, items_left=cython.longlong, cost=cython.longlong)
    cdef _short(self, Layout layout)
    @cython.locals(field=Field, value=object)
    cdef _struct(self, Layout layout)
    @cython.locals(field=Field, count=cython.longlong, tag=cython.longlong, length=cython.longlong, start=cython.Py_ssize_t, _=cython.longlong)
    cdef _rest(self, Layout layout, made)
    @cython.locals(count=cython.longlong, index=cython.Py_ssize_t, rows=tuple)
    cdef _array(self, Field field)
    @cython.locals(start=cython.Py_ssize_t, index=cython.Py_ssize_t, rows=tuple, before=tuple, same=cython.int, item=object)
    cdef tuple _int32_array(self, Py_ssize_t count)
    @cython.locals(count=cython.longlong)
    cdef Py_ssize_t _count(self, Field field) except -2
    @cython.locals(start=cython.Py_ssize_t)
    cdef bint _is_null(self) except -1
    @cython.locals(kind=cython.int, length=cython.longlong, start=cython.Py_ssize_t)
    cdef _value(self, Field field, bint tagged)
    @cython.locals(number=cython.longlong, start=cython.Py_ssize_t)
    cdef _scalar(self, int kind)
    @cython.locals(start=cython.Py_ssize_t)
    cdef int64_t _number(self, int size) except? -1
    @cython.locals(start=cython.Py_ssize_t)
    cdef Py_ssize_t _take(self, long long length) except -1
    cdef int _lacks(self, long long length) except -1
    cdef bytes _bytes(self, Py_ssize_t start, Py_ssize_t length)
    @cython.locals(start=cython.Py_ssize_t)
    cdef _text(self, long long length)
    @cython.locals(value=cython.longlong)
    cdef Py_ssize_t _length(self, bint flexible, bint wide) except -2
    @cython.locals(data=cython.p_uchar, position=cython.Py_ssize_t, end=cython.Py_ssize_t, value=cython.longlong, byte=cython.longlong, shift=cython.int)
    cdef Py_ssize_t _uvarint(self) except -2
