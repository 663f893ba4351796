# C types for `outbox.py`; see there.


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
    cpdef flush(self)
