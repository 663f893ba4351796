# C types for `share_partition.py`; see there.
cimport cython

from ottla.replication.share.acquisition cimport Acquisition
from ottla.replication.share.acknowledgement cimport StateWrite, acknowledge, commit, join, touched
from ottla.replication.share.in_flight cimport InFlightBatch, Run
from ottla.replication.share.ranges cimport spans
from ottla.replication.share.window cimport Window


cdef class SharePartition:
    cdef public object _dead
    cdef public list _deadlines
    cdef public object ahead_ms
    cdef public object config
    cdef public object leader_epoch
    cdef public object selection
    cdef public object state_epoch
    cdef public Window window

    cpdef use(self, config, ahead_ms=*)
    cpdef next_fetch_offset(self)
    cpdef bint can_acquire(self) except -1
    cpdef next_deadline(self)
    cpdef list parts(self, records_max)
    @cython.locals(acquisition=Acquisition)
    cpdef list acquire(self, wanted, fetch_offset, batches, now_ms, aborted=*, marks=*, parts=*)
    cpdef _locked(self, acquired, deadline_ms)
    cpdef acknowledge(self, str member, acknowledgements, now_ms)
    @cython.locals(run=Run)
    cpdef bint written(self, StateWrite write, now_ms, bint committed) except -1
    cpdef _is_available(self, Run run, now_ms)
    cpdef _done(self, StateWrite write, now_ms)
    cpdef StateWrite _new_write(self, bint stands=*)
    cpdef _finished(self, StateWrite write)
    cpdef list _touched(self, StateWrite write)
    @cython.locals(batch=InFlightBatch, run=Run)
    cpdef bint _undo(self, StateWrite write, now_ms) except -1
