# C types for `fetch.py`; see there.
cimport cython
from cpython.memoryview cimport PyMemoryView_GET_BUFFER

from ottla.protocol.fetch cimport FetchRequest
from ottla.protocol.fetch_plain cimport decode_plain
from ottla.server.fetch.fetching cimport Fetch
from ottla.server.connections.outbox cimport EncodedResponse


cdef class FetchShortcut:
    cdef public object _call
    cdef public object _context
    cdef public bytes _head

    @cython.locals(data="const char *", start=cython.Py_ssize_t, request=FetchRequest, one=Fetch)
    cpdef answer(self, frame, correlation_id)
