# C types for `shared.py`; see there.
from ottla.metrics.instruments cimport Histogram


cdef class ShareMetrics:
    cdef public dict _acquire_seconds
    cdef public dict _fetch_ratio
    cdef public dict acknowledged
    cdef public object letters
    cdef public object load_seconds

    cpdef fetched(self, group_id, long long found, long long wanted, double seconds)
    cpdef Histogram _of(self, dict of, group_id, bounds)


cdef class SharePartitionMetrics:
    cdef public double _begun_s
    cdef public double _ended_s
    cdef public double _idle_s
    cdef public long long archived
    cdef public long long bad_delivery_times
    cdef public Histogram batch_records
    cdef public Histogram lock_ratio
    cdef public Histogram lock_seconds
    cdef public long long locks_ended

    cpdef fetch_begins(self, double now_s)
    cpdef fetch_ends(self, double now_s)
