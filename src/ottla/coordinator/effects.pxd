# C types for `effects.py`; see there.


cdef class Now:
    cdef public long long timer_ms
    cdef public long long wall_ms


cdef class Write:
    cdef public object committed
    cdef public list encoded
    cdef public object failed
    cdef public object marker
    cdef public object records
    cdef public object reversals
    cdef public object transaction
    cdef public object undo


cdef class Reply:
    cdef public object response
    cdef public object token
