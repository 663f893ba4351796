# C types for `share_coordinator.py`; see there.


cdef class _Timed:
    cdef public double _began_s
    cdef public object _times_ms
    cdef public object _waiter

    cpdef complete(self, result)
