# C types for `_records.py`; see there.
cimport cython

cdef unsigned long long _UINT32_MAX
cdef unsigned long long _UINT64_MAX
cdef long long _INT64_MAX
cdef long long _INT64_MIN


@cython.locals(raw=cython.ulonglong, shift=cython.int, byte=cython.ulonglong, value=cython.longlong)
cdef (long long, Py_ssize_t) _varint(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept


@cython.locals(raw=cython.ulonglong, shift=cython.int, byte=cython.ulonglong, value=cython.longlong)
cdef (long long, Py_ssize_t) _varlong(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept


@cython.locals(count=cython.longlong, length=cython.longlong)
cdef Py_ssize_t _skip_headers(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept


@cython.locals(
    seen=cython.longlong, least=cython.longlong, greatest=cython.longlong, greatest_index=cython.longlong,
    keyless=cython.longlong, misplaced=cython.longlong, length=cython.longlong, stop=cython.Py_ssize_t,
    delta=cython.longlong, timestamp=cython.longlong, offset_delta=cython.longlong,
)
cpdef tuple scan(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp
)


@cython.locals(raw=cython.ulonglong)
cdef int _append_varint(bytearray out, long long value) except -1


@cython.locals(
    seen=cython.longlong, view="const unsigned char[::1]", delta=cython.longlong, offset_delta=cython.longlong,
    length=cython.longlong, header_count=cython.longlong, timestamp=cython.longlong, pairs=list, records=list,
)
cpdef list read(
    bytes data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_offset, long long base_timestamp,
    long long append_time
)


@cython.locals(greatest=cython.longlong, offset_delta=cython.longlong, timestamp=cython.longlong, body=bytearray)
cpdef long long write(bytearray out, records, long long base_timestamp) except? -2
