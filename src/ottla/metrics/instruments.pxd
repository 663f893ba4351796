# C types for `instruments.py`; see there.
cimport cython


cdef class Histogram:
    cdef public tuple bounds
    cdef public list counts
    cdef public double sum

    @cython.locals(bounds=tuple, index=cython.Py_ssize_t, count=cython.Py_ssize_t, bound=cython.double)
    cpdef add(self, double value, long long times=*)


cdef class ApiStats:
    cdef public dict errors
    cdef public Histogram seconds
    cdef public dict versions

    cpdef answered(self, version, double seconds, long long times=*)


cdef class TopicTraffic:
    cdef public long long bytes_in
    cdef public long long bytes_out
    cdef public long long bytes_rejected
    cdef public long long failed_fetches
    cdef public long long failed_produces
    cdef public long long failed_share_acknowledges
    cdef public long long failed_share_fetches
    cdef public long long fetches
    cdef public long long messages_in
    cdef public long long produces
    cdef public long long share_acknowledges
    cdef public long long share_fetches

    cpdef count_append(self, long long size_bytes, long long first, long long last)


cdef class OffsetCounts:
    cdef public long long commits
    cdef public long long deletions
    cdef public long long expirations


cdef class NodeMetrics:
    cdef public dict _apis
    cdef public TopicTraffic deleted_topics
    cdef public long long failed_isr_updates
    cdef public Histogram flush_seconds
    cdef public long long isr_expands
    cdef public long long isr_shrinks
    cdef public Histogram loop_lag_seconds
    cdef public OffsetCounts offsets
    cdef public long long rebalances
    cdef public object rebalances_of
    cdef public TopicTraffic replication
    cdef public dict topics

    cpdef ApiStats api(self, key)
