# C types for `writer.py`; see there.
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.string cimport memcpy

from ottla.protocol.layout cimport Field, Layout, get_slot

cdef extern from *:
    """
    /* Puts the last `width` bytes (5 at most) of `size + width` first. */
    static void rotate(unsigned char *data, Py_ssize_t size, Py_ssize_t width) {
        unsigned char kept[8];
        memcpy(kept, data + size, (size_t)width);
        memmove(data + width, data, (size_t)size);
        memcpy(data, kept, (size_t)width);
    }
    """
    void rotate(unsigned char *data, Py_ssize_t size, Py_ssize_t width)

cdef int _NUMBERS
cdef int _INT8, _INT16, _UINT16, _INT32, _UINT32, _INT64, _BOOL, _ERROR
cdef int _FLOAT64, _UUID, _STRING, _BYTES, _RECORDS, _STRUCT
cdef long long _TWO_31, _TWO_32, _UNLIMITED
cdef long long _STRING_MAX, _STEP_COST, _ROW_ITEMS
cdef object _MISSING, _DOUBLE, _EPOCH


cdef _default(Field field)


cdef class Writer:
    cdef unsigned char *_data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _capacity
    cdef long long _row_items
    cdef long long _cost

    @cython.locals(size=cython.Py_ssize_t, cost=cython.longlong)
    cdef bint _short(self, Layout layout, values) except -1
    @cython.locals(field=Field)
    cdef _struct(self, Layout layout, values)
    @cython.locals(field=Field)
    cdef _refuse(self, Layout layout, values)
    @cython.locals(mapping=dict)
    cdef _find(self, Layout layout, Field field, values)
    @cython.locals(inner=Field)
    cdef bint _is_default(self, Field field, value) except -1
    @cython.locals(count=cython.longlong)
    cdef _field(self, Field field, value, bint tagged)
    @cython.locals(field=Field, start=cython.Py_ssize_t, at=cython.Py_ssize_t, count=cython.longlong)
    cdef _tags(self, Layout layout, values)
    @cython.locals(kind=cython.int, nullable=cython.bint, data=bytes)
    cdef _value(self, Field field, value, bint tagged)
    @cython.locals(data=bytes)
    cdef _string(self, Field field, value)
    @cython.locals(number=cython.longlong, limit=cython.longlong)
    cdef _number(self, int kind, value)
    @cython.locals(data=cython.p_uchar, shift=cython.int, index=cython.int)
    cdef int _put_number(self, long long value, int size) except -1
    cdef int _put_length(self, long long length, bint flexible, bint wide) except -1
    cdef int _put_uvarint(self, unsigned long long value) except -1
    @cython.locals(size=cython.Py_ssize_t, start=cython.Py_ssize_t, width=cython.Py_ssize_t)
    cdef int _insert_uvarint(self, Py_ssize_t at, long long value) except -1
    cdef int _put_byte(self, int value) except -1
    @cython.locals(length=cython.Py_ssize_t)
    cdef int _put_bytes(self, bytes data) except -1
    cdef int _reserve(self, Py_ssize_t more) except -1
    @cython.locals(capacity=cython.Py_ssize_t, data=cython.p_uchar)
    cdef int _grow(self, Py_ssize_t size) except -1


cdef _whole(value)
cdef _source(values)

@cython.locals(total=cython.longlong)
cdef long long _count_rows(values, long long rows_max) except -1
