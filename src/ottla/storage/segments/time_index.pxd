# C types for `time_index.py`; see there.
cimport cython

from ottla.storage.segments.index_file cimport IndexFile


cdef class TimeIndex(IndexFile):
    cdef public object timestamps
    cdef public object offsets

    cpdef maybe_append(self, long long timestamp_ms, long long offset)
