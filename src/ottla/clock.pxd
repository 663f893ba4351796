# C types for `clock.py`; see there. Its class stays Python's.
cimport cython
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


@cython.locals(now=timespec, found=cython.double)
cpdef double elapsed_s()


@cython.locals(now=timespec, found=cython.longlong)
cpdef long long wall_ms()
