# C types for `waits.py`; see there.
cimport cython

from ottla.replication.share.window cimport Window


cdef class Waits:
    cdef public list _rows
    cdef public Window _window

    cpdef next_ms(self)

    cpdef add(self, long long wait_ms, long long first, long long last, long long rows_max)

    cpdef pop_ended(self, now_ms)


cpdef hold_until(bint is_behind, due_ms, wait_ms, times)


cpdef look_at(due_ms, times)
