# C types for `segment_list.py`; see there.
from ottla.storage.segment cimport Segment


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
