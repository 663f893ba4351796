# C types for `timers.py`; see there.

cdef class Timers:
    cdef public dict _deadlines
    cdef public list _heap
    cdef public dict _queued
    cdef public long long _sequence

    cpdef schedule(self, key, deadline_ms)
    cpdef cancel(self, key)
    cpdef next_deadline(self)
    cpdef pop_expired(self, now_ms)
    cpdef _push(self, key, time_ms)
    cpdef _settle(self)
