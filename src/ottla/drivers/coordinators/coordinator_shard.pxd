# C types for `coordinator_shard.py`; see there.


cdef class Pending:
    cdef public object error
    cdef public object first_offset
    cdef public object rest
    cdef public object timer
    cdef public object write


cdef class Shard:
    cdef public object collected
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
