# C types for `_batch_rows.py`; see there.
cimport cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.string cimport memcpy

from ottla.protocol.records._records cimport _put_varint, _varint_size

cdef unsigned long long _UINT32_MAX
cdef unsigned long long _MURMUR_SEED
cdef unsigned long long _MURMUR_FACTOR
cdef long long _NO_TIMESTAMP
cdef long long _HALF_DELTA_MAX
cdef Py_ssize_t _ROOM_MAX


@cython.locals(length=cython.longlong)
cpdef unsigned long long murmur2(const unsigned char[::1] data)


@cython.locals(
    hashed=cython.ulonglong, end=cython.Py_ssize_t, word=cython.ulonglong, left=cython.longlong,
)
cdef unsigned long long _murmur2(const unsigned char *data, Py_ssize_t position, long long length) noexcept nogil


@cython.final
cdef class Bytes:
    cdef public bint is_there
    cdef public bint has_nulls
    cdef const unsigned char[::1] validity
    cdef const int[::1] offsets
    cdef const unsigned char[::1] data
    cdef public Py_ssize_t start

    cdef long long length(self, Py_ssize_t row) noexcept nogil

    cdef Py_ssize_t position(self, Py_ssize_t row) noexcept nogil


@cython.final
cdef class Numbers:
    cdef public bint is_there
    cdef public bint has_nulls
    cdef const unsigned char[::1] validity
    cdef const long long[::1] values
    cdef public Py_ssize_t start

    cdef long long at(self, Py_ssize_t row) noexcept nogil


@cython.final
cdef class Headers:
    cdef public bint is_there
    cdef public Bytes lists
    cdef public Bytes names
    cdef public Bytes values


@cython.final
cdef class Section:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t head
    cdef public Py_ssize_t size
    cdef public long long base_timestamp
    cdef public long long max_timestamp
    cdef public bytearray memory
    cdef unsigned char[::1] view

    cdef int _start(self, Py_ssize_t room) except -1

    @cython.locals(
        delta=cython.longlong, key_length=cython.longlong, value_length=cython.longlong, size=cython.longlong,
        first=cython.Py_ssize_t, last=cython.Py_ssize_t, at=cython.Py_ssize_t, needed=cython.longlong,
    )
    cdef bint add(
        self, Py_ssize_t row, Bytes key, Bytes value, Headers headers, long long timestamp, long long limit
    ) except -1

    cdef int _grow(self, Py_ssize_t size) except -1

    @cython.locals(length=cython.longlong, start=cython.Py_ssize_t)
    cdef Py_ssize_t _put(self, Py_ssize_t at, Bytes column, Py_ssize_t row) noexcept


@cython.locals(length=cython.longlong)
cdef long long _field_size(Bytes column, Py_ssize_t row) noexcept nogil


cdef long long _hash(Bytes key, Py_ssize_t row, long long length) noexcept nogil


@cython.locals(
    count=cython.Py_ssize_t, chosen=cython.longlong, length=cython.longlong, timestamp=cython.longlong, section=Section,
)
cpdef tuple append(
    list sections, Py_ssize_t row, Py_ssize_t stop, Bytes key, Bytes value, Headers headers, Numbers partitions,
    Numbers timestamps, long long now, Py_ssize_t sticky, long long limit
)
