# C types for `share_reading.py`; see there.
cimport cython

from ottla.drivers.replication.share_partitions cimport LedSharePartition
from ottla.replication.share.aborted cimport ReadBatch
from ottla.replication.share.ranges cimport count_records, has_shorter


cdef class Reading:
    cdef public PartRead _part
    cdef public object aborted
    cdef public list batches
    cdef public object data
    cdef public object error
    cdef public LedSharePartition led
    cdef public object marks
    cdef public list parts
    cdef public list read
    cdef public object up_to

    @cython.locals(batch=ReadBatch)
    cpdef take(self, PartRead part)


cdef class PartRead:
    cdef public list batches
    cdef public object data
    cdef public object offset

    @cython.locals(last=ReadBatch)
    cpdef Py_ssize_t end(self) except -1
    @cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, size=cython.Py_ssize_t, length=cython.longlong, magic=cython.longlong, attributes=cython.longlong, base_offset=cython.longlong, last_offset=cython.longlong)
    cpdef take(self, data, long long until)


@cython.locals(first=ReadBatch, last=ReadBatch)
cpdef Py_ssize_t next_size(list batches, Py_ssize_t size, until) except -1


cpdef list in_order(list found, list more)


@cython.locals(
    first=cython.longlong, last=cython.longlong, each=ReadBatch, inside=list, first_inside=ReadBatch,
    last_inside=ReadBatch, size=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t, left=cython.longlong,
)
cpdef sliced(Reading reading, list acquired)


@cython.locals(
    found=list, index=cython.Py_ssize_t, batch=ReadBatch, row=tuple, first=cython.longlong, last=cython.longlong,
)
cdef list _with_some_of(list batches, list acquired)
