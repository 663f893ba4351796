# C types for `_compaction.py`; see there.
cimport cython

from ottla.protocol.records._records cimport _copy, _put_varint, _varint, _varint_size, _varlong

cdef unsigned long long _UINT64_MAX
cdef unsigned long long _SIP_0
cdef unsigned long long _SIP_1
cdef unsigned long long _SIP_2
cdef unsigned long long _SIP_3


@cython.locals(
    first=cython.ulonglong, v0=cython.ulonglong, v1=cython.ulonglong, v2=cython.ulonglong, v3=cython.ulonglong,
    length=cython.ulonglong, blocks=cython.ulonglong, block=cython.ulonglong, word=cython.ulonglong,
    byte=cython.ulonglong, shift=cython.int, rounds=cython.int,
)
cdef (unsigned long long, unsigned long long) _hash(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t stop, unsigned long long seed_0,
    unsigned long long seed_1
) noexcept nogil


@cython.locals(first=cython.ulonglong, second=cython.ulonglong)
cpdef tuple hash_key(bytes key, unsigned long long seed_0, unsigned long long seed_1)


@cython.locals(number=cython.Py_ssize_t, tries=cython.Py_ssize_t, at=cython.Py_ssize_t)
cdef Py_ssize_t _slot(
    unsigned long long[::1] table, Py_ssize_t slots, unsigned long long first, unsigned long long second
) noexcept nogil


@cython.locals(
    base="const unsigned char *",
    slots=cython.Py_ssize_t, last=cython.longlong, full=cython.bint, length=cython.longlong, stop=cython.Py_ssize_t,
    delta=cython.longlong, first=cython.ulonglong, second=cython.ulonglong, at=cython.Py_ssize_t, _=cython.longlong,
)
cpdef tuple map_keys(
    unsigned long long[::1] table, unsigned long long seed_0, unsigned long long seed_1, Py_ssize_t used,
    Py_ssize_t used_max, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count,
    long long base_offset, long long start_offset
)


@cython.locals(
    base="const unsigned char *",
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


@cython.locals(
    base="const unsigned char *",
    number=cython.Py_ssize_t, at=cython.Py_ssize_t, length=cython.longlong, start=cython.Py_ssize_t,
    stop=cython.Py_ssize_t, delta=cython.longlong, rest=cython.Py_ssize_t,
)
cpdef Py_ssize_t copy_kept(
    unsigned char[::1] out, unsigned char[::1] keep, const unsigned char[::1] data, Py_ssize_t position,
    Py_ssize_t end, long long count, long long base_timestamp, long long append_time, long long new_base_timestamp
) except -1
