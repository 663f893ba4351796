# C types for `share_fetch.py`; see there.
cimport cython

from ottla.drivers.replication.share_partitions cimport LedSharePartition, SharePartitions
from ottla.replication.partition cimport Partition
from ottla.metrics.instruments cimport TopicTraffic
from ottla.replication.share.acquisition cimport Wanted
from ottla.replication.share.ranges cimport count_records
from ottla.replication.share.session cimport ShareSession
from ottla.replication.share.share_partition cimport SharePartition
from ottla.replication.share.window cimport Window
from ottla.server.api cimport RequestContext
from ottla.server.fetch.share_reading cimport Reading, in_order, sliced


cdef class Found:
    cdef public object acquired
    cdef public object error
    cdef public object records


cdef class _ShareFetch:
    cdef public object _committed_only
    cdef public long long _count
    cdef public list _ends
    cdef public bint _is_done
    cdef public bint _is_first
    cdef public bint _is_over
    cdef public object _key
    cdef public list _led
    cdef public bint _looks_again
    cdef public SharePartitions _manager
    cdef public long long _max_bytes
    cdef public bint _may_suspend
    cdef public long long _min_bytes
    cdef public object _node
    cdef public object _readable
    cdef public object _request
    cdef public ShareSession _session
    cdef public long long _threads
    cdef public object _woken
    cdef public dict found

    cpdef bint try_at_once(self) except -1
    @cython.locals(led=LedSharePartition, partition=Partition, traffic=TopicTraffic)
    cpdef _find(self)
    @cython.locals(led=LedSharePartition, core=SharePartition)
    cpdef list _begin(self)
    @cython.locals(core=SharePartition, window=Window)
    cpdef bint _has_all(self, Reading reading) except -1
    cpdef _end(self, Reading reading)
    @cython.locals(reading=Reading, led=LedSharePartition, found=Found)
    cpdef _acquire(self, list readings)
    @cython.locals(led=LedSharePartition)
    cpdef bint _acquire_one(self, Reading reading, SharePartition core) except -1
    @cython.locals(found=Found, traffic=TopicTraffic)
    cpdef _take(self, Reading reading, list acquired)


cdef class _Answer:
    cdef public RequestContext _context
    cdef public bint _is_plain
    cdef public object _key
    cdef public long long _ranges
    cdef public object _request
    cdef public ShareSession _session

    @cython.locals(each=Found, topics=dict)
    cpdef at_once(self, dict found, dict failures)
    cpdef _end(self)
    @cython.locals(session=ShareSession, each=Found, rows=dict)
    cpdef dict _rows(self, dict found, dict failures)
