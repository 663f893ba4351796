# C types for `partition.py`; see there.
cimport cython

from ottla.metrics.instruments cimport TopicTraffic


cdef class Partition:
    cdef public object _commits
    cdef public object _fsyncs
    cdef public long long _now_ms
    cdef public object _pending_isr
    cdef public object _sizes
    cdef public object deletions
    cdef public dict end_sessions
    cdef public dict end_waiters
    cdef public long long epoch_start
    cdef public bint is_leader
    cdef public object isr
    cdef public long long lag_ms_max
    cdef public long long leader_epoch
    cdef public long long leader_id
    cdef public object live_epoch
    cdef public object log
    cdef public long long min_isr
    cdef public long long node_id
    cdef public object on_caught_up
    cdef public object others
    cdef public long long partition_epoch
    cdef public object replicas
    cdef public dict sessions
    cdef public bint sole_in_sync
    cdef public object topic_id
    cdef public object topic_partition
    cdef public TopicTraffic traffic
    cdef public dict waiters
