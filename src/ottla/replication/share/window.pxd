# C types for `window.py`; see there.
cimport cython

from ottla.replication.share.in_flight cimport Counts, InFlightBatch, Run, counted, may_close, may_take


cdef class Window:
    cdef public Counts _counts
    cdef public list _changes
    cdef public long long _gap_end
    cdef public list batches
    cdef public long long end_offset
    cdef public long long gap_start
    cdef public bint look_for_available
    cdef public long long start_offset

    @cython.locals(batch=InFlightBatch, counts=Counts, inside=Counts, start=cython.longlong)
    cpdef Counts counts(self)

    @cython.locals(
        batches=list, low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t,
        step=cython.Py_ssize_t, batch=InFlightBatch,
    )
    cpdef Py_ssize_t floor(self, long long offset) except -2

    @cython.locals(batch=InFlightBatch, run=Run)
    cpdef next_fetch_offset(self)

    cpdef bint settle(self) except -1

    cpdef bint _may_move(self) except -1

    @cython.locals(batch=InFlightBatch, run=Run)
    cpdef _done_until(self)

    @cython.locals(last=InFlightBatch)
    cpdef add(self, InFlightBatch batch)

    @cython.locals(batch=InFlightBatch, behind=InFlightBatch)
    cpdef merge(self, Py_ssize_t index)

    @cython.locals(batch=InFlightBatch)
    cpdef _drop(self, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(
        batches=list, batch=InFlightBatch, behind=InFlightBatch, index=cython.Py_ssize_t,
        folded=cython.longlong, are_done=cython.bint,
    )
    cpdef long long fold(self, long long first, long long last) except? -2

    @cython.locals(index=cython.Py_ssize_t, batch=InFlightBatch)
    cpdef find(self, long long offset)


@cython.locals(runs=list, run=Run)
cdef bint _is_one_and_done(InFlightBatch batch) except -1
