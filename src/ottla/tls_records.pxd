# C types for `tls_records.py`; see there.
cimport cython


cdef class Pieces:
    cdef Py_ssize_t _left
    cdef bytes _head

    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, records=cython.int)
    cpdef Py_ssize_t next(self, data, Py_ssize_t position) except -1
