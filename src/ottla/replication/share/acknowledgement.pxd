# C types for `acknowledgement.py`; see there.
cimport cython

from ottla.replication.share.in_flight cimport InFlightBatch, Run
from ottla.replication.share.window cimport Window

# Members of an enumeration that are compared for each range: found at once, not by name.
cdef object _ACQUIRED
cdef object _ARCHIVING
cdef object _ACKNOWLEDGED
cdef object _ARCHIVED
cdef object _DELIVERIES


cdef _state_batch(first, last, state, count)


cdef class StateWrite:
    cdef public list dead
    cdef public object delivery_complete_count
    cdef public long long given_up
    cdef public object leader_epoch
    cdef public list rows
    cdef public bint stands
    cdef public object start_offset
    cdef public object state_epoch

    @cython.locals(
        rows=list, run_first=cython.longlong, run_count=cython.longlong, last=cython.longlong, count=cython.longlong,
    )
    cpdef add(self, Run run, reason=*)

    @cython.locals(
        kept=list, done_from=cython.longlong, done_until=cython.longlong, first=cython.longlong, last=cython.longlong,
    )
    cpdef list kept(self)


@cython.locals(
    found=list, first=cython.longlong, last=cython.longlong, previous=cython.longlong, count=cython.Py_ssize_t,
    least=cython.longlong, most=cython.longlong,
)
cpdef list as_said(batches, long long type_max, bint is_renewal)


@cython.locals(
    begin=cython.longlong, last=cython.longlong, first=cython.longlong, batch=InFlightBatch, run=Run, part=Run,
    renewed=cython.bint,
)
cpdef bint acknowledge(
    Window window, config, str member, list acknowledgements, StateWrite write, deadline_ms
) except -1


@cython.locals(type_=cython.longlong)
cpdef _whole(long long first, long long last, types)


@cython.locals(index=cython.Py_ssize_t, end=cython.Py_ssize_t, behind=InFlightBatch)
cpdef list _find(Window window, long long first, long long last)


cpdef _check_owner(Run run, member)


@cython.locals(
    found=list, first=cython.longlong, last=cython.longlong, following=cython.Py_ssize_t, start=cython.Py_ssize_t,
    end=cython.Py_ssize_t, row=tuple, batches=list, batch=InFlightBatch,
)
cpdef list touched(Window window, rows)


@cython.locals(freed=list, batch=InFlightBatch)
cpdef list commit(list batches, StateWrite write, bint drops_history)


@cython.locals(batch=InFlightBatch)
cpdef join(list batches)
