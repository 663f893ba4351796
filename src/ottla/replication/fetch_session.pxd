# C types for `fetch_session.py`; see there.


cdef class CachedPartition:
    cdef public object found
    cdef public long long generation
    cdef public long long high_watermark
    cdef public object key
    cdef public long long log_start_offset
    cdef public object request

    cpdef bint is_news(self, long long error, long long high_watermark, long long log_start_offset, bint has_more)


cdef class FetchSession:
    cdef public long long created_ms
    cdef public long long epoch
    cdef public long long id
    cdef public long long last_used_ms
    cdef public dict partitions
    cdef public bint privileged
    cdef public bint uses_topic_ids
