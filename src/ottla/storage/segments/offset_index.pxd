# C types for `offset_index.py`; see there.
cimport cython
from cpython cimport array

from ottla.storage.segments.index_file cimport IndexFile


@cython.locals(words="unsigned int *", low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t)
cdef Py_ssize_t _first_above(array.array values, long long limit) except -1


cdef class OffsetIndex(IndexFile):
    cdef public array.array offsets
    cdef public array.array positions

    cpdef append(self, long long last_offset, long long position)

    @cython.locals(found=cython.Py_ssize_t)
    cpdef (long long, long long, long long) around(self, long long offset)

    @cython.locals(found=cython.Py_ssize_t)
    cpdef long long boundary_at_or_before(self, long long position) except -1
