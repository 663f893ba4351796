# C types for `timers.py`; see there.
cimport cython

cdef long long _NONE


cdef class Timer:
    cdef public long long deadline_ms
    cdef public object key
    cdef public long long queued_ms


cdef class Timers:
    cdef public dict _by_key
    cdef public list _heap
    cdef public long long _sequence
    cdef public long long _size

    cpdef bint move(self, Timer timer, long long deadline_ms)
    @cython.locals(timer=Timer)
    cpdef Timer schedule(self, key, long long deadline_ms)
    @cython.locals(timer=Timer)
    cpdef cancel(self, key)
    cpdef next_deadline(self)
    @cython.locals(timer=Timer)
    cpdef pop_expired(self, long long now_ms)
    cpdef _push(self, Timer timer)
    @cython.locals(timer=Timer, entry=tuple, time_ms=cython.longlong)
    cpdef _settle(self)
