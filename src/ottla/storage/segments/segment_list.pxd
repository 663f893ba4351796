# C types for `segment_list.py`; see there.
cimport cython

from ottla.storage.segments.segment cimport Segment
from ottla.storage.segments.segment_files cimport LogSlice


cdef class SegmentList:
    cdef public object _cache
    cdef public object _fs
    cdef public object _random
    cdef public Segment active
    cdef public list bases
    cdef public object config
    cdef public str directory
    cdef public list items
    cdef public list scheduled_deletions
    cdef public long long size_bytes
    cdef public bint wants_mark

    @cython.locals(bases=list, number=cython.Py_ssize_t, segment=Segment, stop=cython.longlong, found=LogSlice)
    cpdef LogSlice read(
        self, long long offset, long long max_bytes, long long up_to, long long end, bint min_one_batch, bint nowait
    )
