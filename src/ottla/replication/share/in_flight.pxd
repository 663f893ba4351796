# C types for `in_flight.py`; see there.
cimport cython

# Members of an enumeration that are compared for each run: found at once, not by name.
cdef object _AVAILABLE
cdef object _ACQUIRED
cdef object _ACKNOWLEDGED
cdef object _ARCHIVED


cdef class Span:
    cdef public long long first
    cdef public long long last


cdef class Run(Span):
    cdef public long long count
    cdef public object deadline_ms
    cdef public object hold
    cdef public object member
    cdef public object pending
    cdef public object previous
    cdef public object state

    cpdef acquire(self, member, deadline_ms)

    cpdef begin(self, state, config, pending)

    cpdef archive(self)

    cpdef drop_history(self)

    @cython.locals(copy=Run)
    cpdef Run part(self, long long first, long long last)

    cpdef bint is_like(self, Run other) except -1


cdef _limited(state, long long count, config)


@cython.locals(run=Run)
cpdef Run new_run(long long first, long long last, state, long long count, hold)


cpdef bint may_close(Run run) except -1


cpdef bint may_take(Run run) except -1


cdef class Counts:
    cdef public long long in_flight
    cdef public long long terminal
    cdef public long long waiting
    cdef public long long waiting_runs

    cpdef add(self, Counts other, int sign=*)


@cython.locals(found=Counts, run=Run, count=cython.longlong)
cpdef Counts counted(list runs, long long first, long long last)


cdef class InFlightBatch(Span):
    cdef public bint _is_changed
    cdef public list _window_changes
    cdef public Counts counts
    cdef public list runs

    cpdef changed(self)

    cpdef enters(self, list window_changes)

    cpdef leaves(self)

    cpdef recount(self, Counts total)

    cpdef list between(self, long long first, long long last)

    @cython.locals(
        runs=list, run=Run, start=cython.Py_ssize_t, end=cython.Py_ssize_t, count=cython.Py_ssize_t,
    )
    cpdef list seen(self, long long first, long long last)

    @cython.locals(index=cython.Py_ssize_t)
    cpdef Run at(self, long long offset)

    @cython.locals(index=cython.Py_ssize_t, pieces=list)
    cpdef Run cut(self, Run run, long long first, long long last)

    @cython.locals(run=Run)
    cpdef list commit(self, pending, bint drops_history)

    @cython.locals(runs=list, joined=list, run=Run, before=Run, index=cython.Py_ssize_t)
    cpdef join(self)


@cython.locals(low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t, run=Run)
cpdef Py_ssize_t floor(list runs, long long offset) except -2
