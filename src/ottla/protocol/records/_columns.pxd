# C types for `_columns.py`; see there.
cimport cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.string cimport memcpy

from ottla.protocol.records._records cimport _skip_headers, _varint, _varlong

cdef long long _INT64_MAX
cdef long long _INT64_MIN
cdef long long _MILLIS_MAX
cdef int _OK
cdef int _TRUNCATED
cdef int _MALFORMED
cdef int _LEFT_OVER
cdef int _TIMESTAMP_OVERFLOW
cdef Py_ssize_t _RECORD_BYTES_MIN
cdef Py_ssize_t _HEADER_BYTES_MIN
cdef Py_ssize_t _ROWS_MIN
cdef Py_ssize_t _BYTES_MIN


cdef bytearray _room(Py_ssize_t size)


cdef bytearray _grown(bytearray buffer, Py_ssize_t used, Py_ssize_t size)


cdef long long _micros(long long millis) noexcept nogil


@cython.final
cdef class Bits:
    cdef public bint nulls
    cdef public bytearray memory
    cdef public unsigned char[::1] view

    cdef int _start(self) except -1

    @cython.locals(size=cython.Py_ssize_t)
    cdef int reserve(self, Py_ssize_t rows) except -1

    cdef void clear(self, Py_ssize_t row) noexcept nogil

    cdef void undo(self, Py_ssize_t rows, Py_ssize_t end) noexcept nogil

    cdef object take(self, Py_ssize_t rows)


@cython.final
cdef class Binary:
    cdef public Bits bits
    cdef public Py_ssize_t size
    cdef public Py_ssize_t rows_max
    cdef public bytearray offsets_memory
    cdef public int[::1] offsets
    cdef public bytearray data_memory
    cdef public unsigned char[::1] data

    cdef int _start(self, Py_ssize_t rows, Py_ssize_t size) except -1

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t more, Py_ssize_t size) except -1

    cdef void put(self, Py_ssize_t row, const unsigned char *data, Py_ssize_t position, long long length) noexcept nogil

    cdef void undo(self, Py_ssize_t rows, Py_ssize_t end) noexcept nogil

    cdef tuple take(self, Py_ssize_t rows)


@cython.final
cdef class Rows:
    cdef public bint keys
    cdef public bint values
    cdef public bint headers
    cdef public bint timestamps
    cdef public Binary key
    cdef public Binary value
    cdef public Bits lists
    cdef public Binary header_key
    cdef public Binary header_value
    cdef public Py_ssize_t rows
    cdef public Py_ssize_t header_count
    cdef public Py_ssize_t rows_max
    cdef public bytearray offset_memory
    cdef public long long[::1] offset
    cdef public bytearray timestamp_memory
    cdef public long long[::1] timestamp
    cdef public bytearray type_memory
    cdef public int[::1] type
    cdef public bytearray list_memory
    cdef public int[::1] list

    cdef int _start(self, Py_ssize_t rows) except -1

    @cython.locals(used=cython.Py_ssize_t)
    cdef int _grow(self, Py_ssize_t rows_max) except -1

    @cython.locals(
        base="const unsigned char *", size=cython.Py_ssize_t, before=cython.Py_ssize_t,
        headers_before=cython.Py_ssize_t, status=cython.int, seen=cython.longlong,
    )
    cpdef tuple append(
        self, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count,
        long long base_offset, long long base_timestamp, long long append_time, int timestamp_type, long long start,
        long long stop
    )

    cdef int _reserve(self, Py_ssize_t count, Py_ssize_t size) except -1

    cdef void _undo(self, Py_ssize_t rows, Py_ssize_t header_count) noexcept nogil

    @cython.locals(
        seen=cython.longlong, length=cython.longlong, record_end=cython.Py_ssize_t, delta=cython.longlong,
        number=cython.longlong, key_length=cython.longlong, key=cython.Py_ssize_t, value_length=cython.longlong,
        value=cython.Py_ssize_t, plain=cython.bint, offset=cython.longlong, row=cython.Py_ssize_t,
    )
    cdef (int, long long) _append(
        self, const unsigned char *data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_offset,
        long long base_timestamp, long long append_time, int timestamp_type, long long start, long long stop
    ) noexcept nogil

    @cython.locals(count=cython.longlong, length=cython.longlong)
    cdef void _put_headers(
        self, Py_ssize_t row, const unsigned char *data, Py_ssize_t position, Py_ssize_t end
    ) noexcept nogil

    @cython.locals(rows=cython.Py_ssize_t)
    cpdef tuple take(self)
