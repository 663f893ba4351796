# C types for `share_partitions.py`; see there.
cimport cython

from ottla.metrics.shared cimport SharePartitionMetrics
from ottla.replication.partition cimport Partition
from ottla.replication.share.acknowledgement cimport StateWrite
from ottla.replication.share.ranges cimport add_lengths, count_types
from ottla.replication.share.session cimport ShareSessions
from ottla.replication.share.share_partition cimport SharePartition

cpdef error_of(row)


cdef class LedSharePartition:
    cdef public SharePartition core
    cdef public object error
    cdef public bint is_read
    cdef public bint is_wanted
    cdef public object key
    cdef public Py_ssize_t likely_bytes
    cdef public SharePartitionMetrics metrics
    cdef public Partition partition
    cdef public object timer
    cdef public object timer_ms
    cdef public long long unwritten
    cdef public dict waiters
    cdef public object where

    cpdef wake(self)
    cpdef read_begins(self)
    cpdef read_is_over(self)


cdef class SharePartitions:
    cdef public object _backoffs
    cdef public dict _configs
    cdef public object _dead_letters
    cdef public object _find_offset
    cdef public dict _led
    cdef public object _make_dead_letters
    cdef public object _node
    cdef public object _stopped
    cdef public object lost_letters
    cdef public object metrics
    cdef public object persister
    cdef public ShareSessions sessions

    @cython.locals(found=LedSharePartition)
    cpdef get(self, group_id, where)
    cpdef config_of(self, group_id)
    cpdef reads_committed(self, group_id)
    @cython.locals(known=tuple)
    cpdef tuple _settings_of(self, group_id)
    cpdef use(self, SharePartition core, config)
    cpdef acquired(self, LedSharePartition led, acquired)
    @cython.locals(led=LedSharePartition, core=SharePartition)
    cpdef acknowledge(self, group_id, where, member, acknowledgements, done)
    cpdef _written(self, LedSharePartition led, StateWrite write, error)
    cpdef _bury(self, LedSharePartition led)
    cpdef _arm(self, LedSharePartition led)
