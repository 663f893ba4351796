# C types for `engine.py`; see there.
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy

cdef extern from *:
    """
    #include "structmember.h"
    /* The place of a slot in an object, -1 for what is no slot. */
    static Py_ssize_t slot_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    static CYTHON_INLINE void put_slot(PyObject *target, Py_ssize_t offset, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)target + offset);
        PyObject *old = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(old);
    }
    static CYTHON_INLINE PyObject *get_slot(PyObject *source, Py_ssize_t offset) {
        PyObject *value = *(PyObject **)((char *)source + offset);
        if (value == NULL) value = Py_None;
        Py_INCREF(value);
        return value;
    }
    static CYTHON_INLINE PyObject *new_object(PyObject *cls) {
        return PyType_GenericAlloc((PyTypeObject *)cls, 0);
    }
    /* Puts the last `width` bytes (5 at most) of `size + width` first. */
    static void rotate(unsigned char *data, Py_ssize_t size, Py_ssize_t width) {
        unsigned char kept[8];
        memcpy(kept, data + size, (size_t)width);
        memmove(data + width, data, (size_t)size);
        memcpy(data, kept, (size_t)width);
    }
    """
    Py_ssize_t slot_offset(object descriptor)
    void put_slot(object target, Py_ssize_t offset, object value)
    object get_slot(object source, Py_ssize_t offset)
    object new_object(object cls)
    void rotate(unsigned char *data, Py_ssize_t size, Py_ssize_t width)

cdef int _NUMBERS
cdef int _INT8, _INT16, _UINT16, _INT32, _UINT32, _INT64, _BOOL, _ERROR
cdef int _FLOAT64, _UUID, _STRING, _BYTES, _RECORDS, _STRUCT
cdef long long _TWO_31, _TWO_32, _UNLIMITED
cdef long long _TAGS_MAX, _STRING_MAX, _REPLACED_MAX, _STEP_COST, _ROW_COST, _ROW_ITEMS
cdef object _MISSING
cdef dict _ERRORS, _UUIDS
cdef object _DOUBLE, _EPOCH


cdef class Field:
    cdef readonly str name
    cdef readonly int kind
    cdef readonly bint is_array, nullable, flexible
    cdef readonly object default
    cdef readonly Layout layout
    cdef readonly int tag
    cdef bint shortened
    cdef long long item_cost
    cdef readonly long long item_bytes_min
    cdef Py_ssize_t offset


cdef class Layout:
    cdef readonly object cls
    cdef readonly list fields, tagged, absent, refused
    cdef readonly bint flexible, has_arrays
    cdef readonly dict by_tag
    cdef readonly long long bytes_min


cdef _locate(Layout layout, Field field)
cdef _put(target, Field field, value)
cdef _get(source, Field field)
cdef _new(cls)
cdef _default(Field field)

@cython.locals(field=Field)
cpdef of_defaults(Layout layout)
cdef _uuid_of(bytes data)


cdef class Reader:
    cdef Py_buffer _buffer
    cdef bint _held
    cdef unsigned char *_data
    cdef Py_ssize_t _end
    cdef readonly Py_ssize_t position
    cdef long long _items_left, _row_items, _cost

    cdef _release(self)
    @cython.locals(position=cython.Py_ssize_t, items_left=cython.longlong)
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


cdef class Writer:
    cdef unsigned char *_data
    cdef Py_ssize_t _size, _capacity
    cdef long long _row_items, _cost

    @cython.locals(size=cython.Py_ssize_t)
    cdef bint _short(self, Layout layout, values) except -1
    @cython.locals(field=Field)
    cdef _struct(self, Layout layout, values)
    @cython.locals(field=Field)
    cdef _refuse(self, Layout layout, values)
    @cython.locals(mapping=dict)
    cdef _find(self, Layout layout, Field field, values)
    cdef _field(self, Field field, value, bint tagged)
    @cython.locals(field=Field, start=cython.Py_ssize_t, at=cython.Py_ssize_t, count=cython.longlong)
    cdef _tags(self, Layout layout, values)
    @cython.locals(kind=cython.int, nullable=cython.bint, data=bytes)
    cdef _value(self, Field field, value, bint tagged)
    @cython.locals(text=str, data=bytes)
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
cdef _rows(value)
cdef _source(values)
cdef bint _is_default(Field field, value) except -1

@cython.locals(total=cython.longlong)
cdef long long _count_rows(values, long long rows_max) except -1
