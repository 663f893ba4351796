# C types for `outbox.py`; see there.

cimport cython

cdef tuple _BUFFERS
cdef object _INT32


cdef class EncodedResponse:
    cdef public long long length
    cdef public object parts


cdef class Outbox:
    cdef public long long _held
    cdef public object _loop
    cdef public object _on_drained
    cdef public object _on_error
    cdef public object _queue
    cdef public object _sender
    cdef public bint _watching
    cdef public long long queued

    cpdef write(self, parts, long long length)
    @cython.locals(length=cython.longlong)
    cpdef long long write_frame(self, EncodedResponse response) except -1
    cpdef flush(self)

    @cython.locals(gathered=list, size=cython.longlong, sent=cython.longlong, more=cython.int)
    cpdef bint _send(self) except -1
