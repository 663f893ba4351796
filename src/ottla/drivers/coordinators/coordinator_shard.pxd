# C types for `coordinator_shard.py`; see there.
cimport cython


cdef class Batch:
    cdef public list encoded
    cdef public list rest
    cdef public Py_ssize_t size
    cdef public list writes

    cpdef bint has_room(self, list encoded, Py_ssize_t size, Py_ssize_t bytes_max)
    cpdef add(self, write, list encoded, Py_ssize_t size, rest)


@cython.locals(size=cython.Py_ssize_t, pair=tuple, key=bytes, value=bytes)
cpdef Py_ssize_t bytes_of(list encoded) except -1


cdef class Pending:
    cdef public object error
    cdef public object first_offset
    cdef public object rest
    cdef public object timer
    cdef public object write


cdef class Shard:
    cdef public Batch collected
    cdef public object core
    cdef public object damage
    cdef public object error
    cdef public bint is_scheduled
    cdef public object leader_epoch
    cdef public bint must_wait
    cdef public object partition
    cdef public object pending
    cdef public object task
    cdef public object timer
    cdef public long long timer_deadline_ms

    cpdef take(self)
    cpdef next_deadline(self)
