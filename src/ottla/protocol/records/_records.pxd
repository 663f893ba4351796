# C types for `_records.py`; see there.
cimport cython

cdef unsigned long long _UINT32_MAX
cdef unsigned long long _UINT64_MAX
cdef long long _INT64_MAX
cdef long long _INT64_MIN
cdef Py_ssize_t _PLAIN_HEAD_BYTES
cdef long long _PLAIN_RECORDS_MAX
cdef long long _DELTA_BYTE_MAX
cdef int _OK
cdef int _TRUNCATED
cdef int _MALFORMED
cdef int _LEFT_OVER
cdef int _TIMESTAMP_OVERFLOW
cdef int _OVERSIZED
cdef Py_ssize_t _VARINT_BYTES_MAX
cdef long long _RECORD_BODY_MIN


@cython.locals(byte=cython.longlong, following=cython.longlong)
cdef (long long, Py_ssize_t) _varint(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end
) noexcept nogil


@cython.locals(raw=cython.ulonglong, shift=cython.int, byte=cython.ulonglong, value=cython.longlong)
cdef (long long, Py_ssize_t) _long_varint(const unsigned char *data, Py_ssize_t position, Py_ssize_t end) noexcept nogil


@cython.locals(byte=cython.longlong)
cdef (long long, Py_ssize_t) _varlong(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end
) noexcept nogil


@cython.locals(raw=cython.ulonglong, shift=cython.int, byte=cython.ulonglong, value=cython.longlong)
cdef (long long, Py_ssize_t) _long_varlong(const unsigned char *data, Py_ssize_t position, Py_ssize_t end) noexcept nogil


@cython.locals(count=cython.longlong, length=cython.longlong)
cdef Py_ssize_t _skip_headers(const unsigned char *data, Py_ssize_t position, Py_ssize_t end) noexcept nogil


@cython.locals(length=cython.longlong, after=cython.Py_ssize_t)
cdef (int, Py_ssize_t, long long) _measure(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, long long seen, long long count, long long limit
) noexcept nogil


@cython.locals(
    seen=cython.longlong, least=cython.longlong, greatest=cython.longlong, greatest_index=cython.longlong,
    keyless=cython.longlong, misplaced=cython.longlong, is_usual=cython.bint, following=cython.longlong,
    low=cython.longlong, high=cython.longlong, index=cython.longlong, delta=cython.longlong, timestamp=cython.longlong,
    number=cython.longlong, keyed=cython.bint,
)
cdef (int, long long, long long, long long, long long, long long, long long) _scan(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp
) noexcept nogil


@cython.locals(
    low=cython.longlong, high=cython.longlong, high_index=cython.longlong, keyless=cython.longlong,
    known=cython.longlong, numbered=cython.longlong, limit=cython.longlong, last=cython.Py_ssize_t,
    at=cython.Py_ssize_t, stop=cython.Py_ssize_t, length=cython.longlong, delta=cython.longlong,
    number=cython.longlong, key=cython.longlong, value=cython.longlong, more=cython.longlong,
)
cdef (Py_ssize_t, long long, long long, long long, long long, long long) _skip_plain(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, long long seen, long long count
) noexcept nogil


@cython.locals(
    length=cython.longlong, stop=cython.Py_ssize_t, delta=cython.longlong, offset_delta=cython.longlong,
    keyed=cython.bint,
)
cdef (Py_ssize_t, long long, long long, bint) _record(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end
) noexcept nogil


@cython.locals(base="const unsigned char *")
cpdef tuple scan(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp
)


@cython.locals(base="const unsigned char *")
cpdef tuple measure(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long seen, long long count, long long limit
)


@cython.locals(
    base="const unsigned char *",
    status=cython.int, seen=cython.longlong, least=cython.longlong, greatest=cython.longlong, index=cython.longlong,
    keyless=cython.longlong, misplaced=cython.longlong,
)
cpdef tuple scan_unlocked(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp
)


@cython.locals(
    base="const unsigned char *",
    room=cython.Py_ssize_t, at=cython.Py_ssize_t, number=cython.longlong, total=cython.longlong,
    untimely=cython.longlong, length=cython.longlong, stop=cython.Py_ssize_t, timestamp=cython.longlong,
    for_key=cython.bint, for_time=cython.bint, _=cython.longlong,
)
cpdef tuple refused(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp,
    long long append_time, long long low, long long high, bint refuse_keyless, long long[::1] found
)


@cython.locals(
    base="const unsigned char *",
    found=cython.longlong, time=cython.longlong, length=cython.longlong, stop=cython.Py_ssize_t, delta=cython.longlong,
)
cpdef tuple first_at(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp,
    long long append_time, long long timestamp, long long delta_min
)


@cython.locals(
    base="const unsigned char *",
    number=cython.longlong, at=cython.Py_ssize_t, length=cython.longlong, start=cython.Py_ssize_t,
    stop=cython.Py_ssize_t, middle=cython.Py_ssize_t, _=cython.longlong,
)
cpdef Py_ssize_t renumber(
    unsigned char[::1] out, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count
) except -1


cdef Py_ssize_t _copy(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t stop
) noexcept nogil


@cython.locals(raw=cython.ulonglong)
cdef int _append_varint(bytearray out, long long value) except -1


@cython.locals(
    base="const unsigned char *",
    seen=cython.longlong, view="const unsigned char[::1]", delta=cython.longlong, offset_delta=cython.longlong,
    length=cython.longlong, header_count=cython.longlong, timestamp=cython.longlong, pairs=list, records=list,
)
cpdef list read(
    bytes data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_offset, long long base_timestamp,
    long long append_time
)


@cython.locals(
    base="const unsigned char *", view="const unsigned char[::1]", seen=cython.longlong, size=cython.Py_ssize_t,
    length=cython.longlong, stop=cython.Py_ssize_t, delta=cython.longlong, header_count=cython.longlong,
    is_it=cython.bint, found=list,
)
cpdef list marks(
    bytes data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_offset, bytes header,
    bint wants_keys
)


@cython.locals(greatest=cython.longlong, offset_delta=cython.longlong, timestamp=cython.longlong, body=bytearray)
cpdef long long write(bytearray out, records, long long base_timestamp) except? -2


@cython.locals(raw=cython.ulonglong, size=cython.Py_ssize_t)
cdef Py_ssize_t _varint_size(long long value) noexcept nogil


@cython.locals(raw=cython.ulonglong)
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t at, long long value) noexcept nogil


