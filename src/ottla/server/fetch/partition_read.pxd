# C types for `partition_read.py`; see there.
cimport cython
from cpython.tuple cimport PyTuple_GET_ITEM

from ottla.protocol.fetch_plain cimport Row
from ottla.replication.fetch_session cimport CachedPartition, FetchSession
from ottla.replication.partition cimport Partition
from ottla.storage.log.log cimport Log
from ottla.storage.segments.segment_files cimport LogSlice


cdef class Read(Row):
    cdef public object aborted
    cdef public object diverging
    cdef public object error
    cdef public object log
    cdef public int preferred
    cdef public object traffic
    cdef public long long unreadable_at


cdef class Found:
    cdef public Py_ssize_t count
    cdef public list reads
    cdef public long long size
    cdef public bint urgent


cpdef long long field_of(asked, Py_ssize_t number) except? -2


cpdef partition_of(replicas, key)


@cython.locals(epoch=cython.longlong, log=Log)
cpdef bint has_nothing_new(CachedPartition cached, Partition partition, bint leader_only) except -1


@cython.locals(log=Log, found=Read, high_watermark=cython.longlong, stable=cython.longlong, up_to=cython.longlong)
cpdef Read read(
    Partition partition, object asked, long long max_bytes, int isolation, bint min_one_batch, bint nowait,
    bint leader_only
)


cdef class Follower:
    cdef public long long broker_epoch
    cdef public bint is_retry
    cdef public int node_id
    cdef public long long now_ms
    cdef public object throttle
    cdef public object traffic


@cython.locals(log=Log, found=Read, offset=cython.longlong, end=cython.longlong)
cpdef Read read_as_follower(
    Partition partition, object asked, long long max_bytes, Follower by, bint min_one_batch, bint nowait
)


cpdef bint keeps_up(CachedPartition cached, Partition partition, Read read, Follower by) except -1


@cython.locals(read=Read, cold=list, records=LogSlice)
cpdef list take_cached(list reads)


cpdef bint is_news(FetchSession session, CachedPartition cached, Read read) except -1


@cython.locals(read=Read)
cpdef bint is_plain(list rows) except -1


cpdef fetched(number, Read read)
