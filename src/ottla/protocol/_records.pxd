# C types for `_records.py`; see there.
cimport cython

cdef unsigned long long _UINT32_MAX
cdef unsigned long long _UINT64_MAX
cdef long long _INT64_MAX
cdef long long _INT64_MIN
cdef unsigned long long _SIP_0
cdef unsigned long long _SIP_1
cdef unsigned long long _SIP_2
cdef unsigned long long _SIP_3
cdef int _OK
cdef int _TRUNCATED
cdef int _MALFORMED
cdef int _LEFT_OVER
cdef int _TIMESTAMP_OVERFLOW


@cython.locals(raw=cython.ulonglong, shift=cython.int, byte=cython.ulonglong, value=cython.longlong)
cdef (long long, Py_ssize_t) _varint(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept nogil


@cython.locals(raw=cython.ulonglong, shift=cython.int, byte=cython.ulonglong, value=cython.longlong)
cdef (long long, Py_ssize_t) _varlong(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept nogil


@cython.locals(count=cython.longlong, length=cython.longlong)
cdef Py_ssize_t _skip_headers(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept nogil


@cython.locals(
    seen=cython.longlong, least=cython.longlong, greatest=cython.longlong, greatest_index=cython.longlong,
    keyless=cython.longlong, misplaced=cython.longlong, length=cython.longlong, stop=cython.Py_ssize_t,
    delta=cython.longlong, timestamp=cython.longlong, offset_delta=cython.longlong,
)
cdef (int, long long, long long, long long, long long, long long, long long) _scan(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp
) noexcept nogil


cpdef tuple scan(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp
)


@cython.locals(
    status=cython.int, seen=cython.longlong, least=cython.longlong, greatest=cython.longlong, index=cython.longlong,
    keyless=cython.longlong, misplaced=cython.longlong,
)
cpdef tuple scan_unlocked(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp
)


@cython.locals(
    room=cython.Py_ssize_t, at=cython.Py_ssize_t, number=cython.longlong, total=cython.longlong,
    untimely=cython.longlong, length=cython.longlong, stop=cython.Py_ssize_t, timestamp=cython.longlong,
    for_key=cython.bint, for_time=cython.bint, _=cython.longlong,
)
cpdef tuple refused(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp,
    long long append_time, long long low, long long high, bint refuse_keyless, long long[::1] found
)


@cython.locals(
    found=cython.longlong, time=cython.longlong, length=cython.longlong, stop=cython.Py_ssize_t, delta=cython.longlong,
)
cpdef tuple first_at(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_timestamp,
    long long append_time, long long timestamp, long long delta_min
)


@cython.locals(
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
    seen=cython.longlong, view="const unsigned char[::1]", delta=cython.longlong, offset_delta=cython.longlong,
    length=cython.longlong, header_count=cython.longlong, timestamp=cython.longlong, pairs=list, records=list,
)
cpdef list read(
    bytes data, Py_ssize_t position, Py_ssize_t end, long long count, long long base_offset, long long base_timestamp,
    long long append_time
)


@cython.locals(greatest=cython.longlong, offset_delta=cython.longlong, timestamp=cython.longlong, body=bytearray)
cpdef long long write(bytearray out, records, long long base_timestamp) except? -2


@cython.locals(
    first=cython.ulonglong, v0=cython.ulonglong, v1=cython.ulonglong, v2=cython.ulonglong, v3=cython.ulonglong,
    length=cython.ulonglong, blocks=cython.ulonglong, block=cython.ulonglong, word=cython.ulonglong,
    byte=cython.ulonglong, shift=cython.int, rounds=cython.int,
)
cdef (unsigned long long, unsigned long long) _hash(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t stop, unsigned long long seed_0,
    unsigned long long seed_1
) noexcept nogil


@cython.locals(first=cython.ulonglong, second=cython.ulonglong)
cpdef tuple hash_key(bytes key, unsigned long long seed_0, unsigned long long seed_1)


@cython.locals(number=cython.Py_ssize_t, tries=cython.Py_ssize_t, at=cython.Py_ssize_t)
cdef Py_ssize_t _slot(
    unsigned long long[::1] table, Py_ssize_t slots, unsigned long long first, unsigned long long second
) noexcept nogil


@cython.locals(
    slots=cython.Py_ssize_t, last=cython.longlong, full=cython.bint, length=cython.longlong, stop=cython.Py_ssize_t,
    delta=cython.longlong, first=cython.ulonglong, second=cython.ulonglong, at=cython.Py_ssize_t, _=cython.longlong,
)
cpdef tuple map_keys(
    unsigned long long[::1] table, unsigned long long seed_0, unsigned long long seed_1, Py_ssize_t used,
    Py_ssize_t used_max, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count,
    long long base_offset, long long start_offset
)


@cython.locals(
    slots=cython.Py_ssize_t, number=cython.Py_ssize_t, kept=cython.longlong, keyless=cython.longlong,
    tombstones=cython.bint, stays=cython.bint, first_timestamp=cython.longlong, greatest=cython.longlong,
    length=cython.longlong, value_length=cython.longlong, stop=cython.Py_ssize_t, timestamp=cython.longlong,
    delta=cython.longlong, first=cython.ulonglong, second=cython.ulonglong, at=cython.Py_ssize_t,
    _=cython.Py_ssize_t,
)
cpdef tuple retain(
    unsigned long long[::1] table, unsigned long long seed_0, unsigned long long seed_1, long long mapped_to,
    bint drop_tombstones, unsigned char[::1] keep, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end,
    long long count, long long base_offset, long long base_timestamp
)


@cython.locals(raw=cython.ulonglong, size=cython.Py_ssize_t)
cdef Py_ssize_t _varint_size(long long value) noexcept nogil


@cython.locals(raw=cython.ulonglong)
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t at, long long value) noexcept nogil


@cython.locals(
    number=cython.Py_ssize_t, at=cython.Py_ssize_t, length=cython.longlong, start=cython.Py_ssize_t,
    stop=cython.Py_ssize_t, delta=cython.longlong, rest=cython.Py_ssize_t,
)
cpdef Py_ssize_t copy_kept(
    unsigned char[::1] out, unsigned char[::1] keep, const unsigned char[::1] data, Py_ssize_t position,
    Py_ssize_t end, long long count, long long base_timestamp, long long append_time, long long new_base_timestamp
) except -1
