# C types for `stamp.py`; see there.
cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_GET_BUFFER

from ottla.protocol.records._records cimport _scan

cdef int _HEADER_SIZE
cdef int _OVERHEAD
cdef int _CRC_FROM
cdef int _TRANSACTIONAL
cdef int _MARKER


cdef class Stamped:
    cdef public long long base_offset
    cdef public bint is_transactional
    cdef public long long last_offset
    cdef public long long max_timestamp
    cdef public long long producer_id
    cdef public long long size


cdef class StampRules:
    cdef public long long bytes_max
    cdef public bint compacted
    cdef public long long older_max_ms
    cdef public long long later_max_ms

    @cython.locals(
        size=cython.Py_ssize_t, data="unsigned char *", count=cython.longlong,
        attributes=cython.longlong, base_timestamp=cython.longlong, max_timestamp=cython.longlong, producer_id=cython.longlong, status=cython.int,
        least=cython.longlong, greatest=cython.longlong, keyless=cython.longlong, misplaced=cython.longlong,
        _=cython.longlong, found=Stamped,
    )
    cpdef Stamped stamp(self, records, long long now_ms, long long next_offset, long long leader_epoch, bint is_own=*)


@cython.locals(value=cython.longlong)
cdef long long _number(const unsigned char *data, Py_ssize_t at, int size) noexcept


cdef void _put(unsigned char *data, Py_ssize_t at, int size, long long value) noexcept
