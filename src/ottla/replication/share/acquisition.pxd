# C types for `acquisition.py`; see there.
cimport cython

from ottla.replication.share.aborted cimport ReadBatch
from ottla.replication.share.in_flight cimport InFlightBatch, Run
from ottla.replication.share.window cimport Window


cdef class Wanted:
    cdef public long long batch_size
    cdef public object member
    cdef public long long records_max
    cdef public bint strict


cdef class Acquisition:
    cdef public object _batches
    cdef public object _config
    cdef public object _deadline_ms
    cdef public long long _left
    cdef public long long _until
    cdef public Wanted _wanted
    cdef public Window _window
    cdef public list acquired

    @cython.locals(window=Window, first_batch=ReadBatch, last_batch=ReadBatch, first=cython.longlong, last=cython.longlong, base=cython.longlong, floor=cython.Py_ssize_t)
    cpdef run(self, long long fetch_offset)
    @cython.locals(window=Window)
    cpdef bint _measure(self, long long fetch_offset, long long last) except -1
    @cython.locals(window=Window, batch=InFlightBatch)
    cpdef _archive_compacted(self, long long fetch_offset, long long first)
    @cython.locals(batch=InFlightBatch)
    cpdef _again(self, in_flight, long long first, long long base)
    @cython.locals(run=Run, part=Run)
    cpdef long long _take(self, InFlightBatch batch, long long first) except -1
    @cython.locals(window=Window, whole=cython.longlong, head=InFlightBatch, left=cython.longlong, until=cython.longlong)
    cpdef _new(self, long long first, long long last)
    @cython.locals(wanted=Wanted, run=Run, rest=Run, batch=InFlightBatch)
    cpdef InFlightBatch _in_flight(self, long long first, long long last)
    @cython.locals(batch=ReadBatch)
    cpdef long long _end_of_batch(self, long long offset) except -1
    @cython.locals(batch=ReadBatch, size=cython.longlong)
    cpdef list _split(self, long long first, long long last)


cpdef append_acquired(list taken, more)
