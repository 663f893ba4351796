# C types for `segment_indexes.py`; see there.
from ottla.storage.segments.offset_index cimport OffsetIndex
from ottla.storage.segments.time_index cimport TimeIndex


cdef class SegmentIndexes:
    cdef public long long _base_offset
    cdef public object _fs
    cdef public str _stem
    cdef public OffsetIndex offset
    cdef public TimeIndex time
    cdef public object transaction
