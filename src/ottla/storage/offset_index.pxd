# C types for `offset_index.py`; see there.
cimport cython

from ottla.storage.index_file cimport IndexFile


cdef class OffsetIndex(IndexFile):
    cdef public object offsets
    cdef public object positions

    cpdef append(self, long long last_offset, long long position)

    @cython.locals(found=cython.Py_ssize_t)
    cpdef tuple around(self, long long offset)

    @cython.locals(found=cython.Py_ssize_t)
    cpdef long long boundary_at_or_before(self, long long position) except -1
