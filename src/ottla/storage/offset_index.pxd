# C types for `offset_index.py`; see there.
from ottla.storage.index_file cimport IndexFile


cdef class OffsetIndex(IndexFile):
    cdef public object offsets
    cdef public object positions

    cpdef append(self, long long last_offset, long long position)
