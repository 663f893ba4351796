# C types for `fetch.py`; see there.
cimport cython

from ottla.server.fetching cimport Fetch


cdef class FetchShortcut:
    cdef public object _api
    cdef public object _context
    cdef public bytes _head

    @cython.locals(start=cython.Py_ssize_t, one=Fetch)
    cpdef answer(self, frame, correlation_id)
