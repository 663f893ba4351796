# C types for `coordinator_effects.py`; see there.
cimport cython

from ottla.coordinator.effects cimport Reply, Write


cdef class CoordinatorClock:
    cdef public object _clock
    cdef public object _loop_s

    @cython.locals(seconds=cython.double)
    cpdef now(self)
