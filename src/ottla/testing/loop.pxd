# C types for `loop.py`; see there.
cimport cython


@cython.final
cdef class Event:
    cdef public tuple _args
    cdef public object _callback
    cdef public object _context
    cdef public object _loop

    cdef _run(self)


cdef class SimulatedTime:
    cdef public object _later
    cdef public object _ready
    cdef public long long _sequence
    cdef public object after_step
    cdef public Event handle
    cdef public double now_s
    cdef public object random
    cdef public object seed
    cdef public long long steps
    cdef public object work

    cpdef at(self, double when_s, Event handle)

    cdef _step(self, Event handle)

    cpdef soon(self, Event handle)
