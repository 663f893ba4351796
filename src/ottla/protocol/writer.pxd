# C types for `writer.py`; see there.
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, _PyBytes_Resize
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

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
    get_slot,
)

cdef extern from *:
    """
    /* Puts the last `width` bytes (5 at most) of `size + width` first. */
    static void rotate(unsigned char *data, Py_ssize_t size, Py_ssize_t width) {
        unsigned char kept[8];
        memcpy(kept, data + size, (size_t)width);
        memmove(data + width, data, (size_t)size);
        memcpy(data, kept, (size_t)width);
    }
    static CYTHON_INLINE void put_big_endian(unsigned char *data, long long value, int size) {
        unsigned long long swapped = __builtin_bswap64((unsigned long long)value << (64 - 8 * size));
        memcpy(data, &swapped, (size_t)size);
    }
    /* Writes an int of 32 bits; returns 0, and writes nothing, for anything else. */
    static CYTHON_INLINE int put_int32(unsigned char *data, PyObject *value) {
        int overflow;
        long number;
        if (!PyLong_CheckExact(value)) return 0;
        number = PyLong_AsLongAndOverflow(value, &overflow);
        if (overflow || number != (int)number) return 0;
        put_big_endian(data, number, 4);
        return 1;
    }
    static int put_uuid(unsigned char *data, PyObject *number) {
        if (!PyLong_Check(number)) {
            PyErr_SetString(PyExc_TypeError, "no UUID");
            return -1;
        }
    #if PY_VERSION_HEX >= 0x030d0000
        Py_ssize_t size = PyLong_AsNativeBytes(number, data, 16, Py_ASNATIVEBYTES_UNSIGNED_BUFFER);
        if (size > 16) {
            PyErr_SetString(PyExc_OverflowError, "int too big to convert");
        }
        return size < 0 || size > 16 ? -1 : 0;
    #else
        return _PyLong_AsByteArray((PyLongObject *)number, data, 16, 0, 0);
    #endif
    }
    /* Gives the bytes that `*held` holds, cut to `size`. */
    static PyObject *taken(PyObject **held, Py_ssize_t size) {
        PyObject *data;
        _PyBytes_Resize(held, size);
        data = *held;
        *held = NULL;
        return data;
    }
    """
    void rotate(unsigned char *data, Py_ssize_t size, Py_ssize_t width)
    void put_big_endian(unsigned char *data, long long value, int size)
    bint put_int32(unsigned char *data, object value)
    int put_uuid(unsigned char *data, object number) except -1
    bytes taken(PyObject **held, Py_ssize_t size)

cdef enum:
    _BUFFER_BYTES = 384

cdef long long _TWO_31, _TWO_32, _UNLIMITED
cdef long long _STRING_MAX, _STEP_COST, _ROW_ITEMS
cdef object _MISSING, _DOUBLE, _EPOCH


cdef _default(Field field)


@cython.locals(writer=Writer)
cpdef bytes write_struct(Layout layout, values, bytes head=*)


@cython.locals(writer=Writer, parts=list)
cpdef list write_parts(Layout layout, values, bytes head=*)


@cython.final
@cython.freelist(4)
cdef class Writer:
    cdef unsigned char *_data
    cdef unsigned char[384] _short_data
    cdef PyObject *_long
    cdef Py_ssize_t _size
    cdef Py_ssize_t _capacity
    cdef list _parts
    cdef long long _row_items
    cdef long long _cost

    cdef int _open(self, bytes head) except -1
    @cython.locals(size=cython.Py_ssize_t, cost=cython.longlong)
    cdef bint _short(self, Layout layout, values) except -1
    @cython.locals(field=Field)
    cdef int _struct(self, Layout layout, values) except -1
    @cython.locals(field=Field)
    cdef int _refuse(self, Layout layout, values) except -1
    @cython.locals(mapping=dict)
    cdef _find(self, Layout layout, Field field, values)
    @cython.locals(inner=Field)
    cdef bint _is_default(self, Field field, value) except -1
    @cython.locals(count=cython.Py_ssize_t, kind=cython.int, layout=Layout)
    cdef _array(self, Field field, value)
    @cython.locals(field=Field, start=cython.Py_ssize_t, at=cython.Py_ssize_t, count=cython.longlong)
    cdef _tags(self, Layout layout, values)
    @cython.locals(kind=cython.int, data=bytes)
    cdef int _value(self, Field field, value, bint tagged) except -1
    @cython.locals(text=cython.p_const_char, length=cython.Py_ssize_t)
    cdef int _string(self, Field field, value) except -1
    cdef int _uuid(self, number) except -1
    cdef int _int32(self, value) except -1
    @cython.locals(number=cython.longlong, overflow=cython.int)
    cdef int _number(self, int kind, value) except -1
    cdef int _put_number(self, long long value, int size) except -1
    cdef int _put_length(self, long long length, bint flexible, bint wide) except -1
    cdef int _put_uvarint(self, unsigned long long value) except -1
    @cython.locals(size=cython.Py_ssize_t, start=cython.Py_ssize_t, width=cython.Py_ssize_t)
    cdef int _insert_uvarint(self, Py_ssize_t at, long long value) except -1
    cdef int _put_byte(self, int value) except -1
    @cython.locals(length=cython.Py_ssize_t)
    cdef int _put_bytes(self, bytes data) except -1
    cdef int _reserve(self, Py_ssize_t more) except -1
    @cython.locals(capacity=cython.Py_ssize_t, data=bytes)
    cdef int _grow(self, Py_ssize_t size) except -1


cdef _whole(value)
cdef _source(Layout layout, values)

@cython.locals(total=cython.longlong)
cdef long long _count_rows(values, long long rows_max) except -1
