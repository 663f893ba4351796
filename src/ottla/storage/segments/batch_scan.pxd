# C types for `batch_scan.py`; see there.
cimport cython

from ottla.storage.segments.segment_files cimport SegmentFile

cdef Py_ssize_t _HEADER
cdef long long _BATCH_BYTES_MIN
cdef long long _OFFSET_MAX
cdef long long _TWO_31
cdef long long _TWO_32
cdef Py_ssize_t _LENGTH
cdef Py_ssize_t _LAST_OFFSET_DELTA
cdef Py_ssize_t _MAX_TIMESTAMP
cdef Py_ssize_t _PRODUCER_ID


cdef class FoundBatch:
    cdef public long long base_offset
    cdef public long long last_offset
    cdef public long long max_timestamp
    cdef public long long position
    cdef public long long producer_id
    cdef public long long size


@cython.locals(data=bytes)
cpdef FoundBatch batch_at(SegmentFile handle, long long position, long long end, bint nowait)


@cython.locals(
    length=cython.longlong, delta=cython.longlong, base_offset=cython.longlong, found=FoundBatch
)
cdef FoundBatch _unpack(bytes data, Py_ssize_t at, long long position, long long end)


@cython.locals(value=cython.longlong)
cdef long long _int32(bytes data, Py_ssize_t at) noexcept


@cython.locals(low=cython.longlong)
cdef long long _int64(bytes data, Py_ssize_t at) noexcept


cdef bytes _read(SegmentFile handle, long long position, long long length, bint nowait)
