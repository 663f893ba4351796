# C types for `fetch.py`; see there.
cimport cython


cdef class FetchTopic:
    cdef public object name
    cdef public list partitions
    cdef public object topic_id


cdef class FetchRequest:
    cdef public object cluster_id
    cdef public object forgotten_topics
    cdef public int isolation_level
    cdef public int max_bytes
    cdef public int max_wait_ms
    cdef public int min_bytes
    cdef public object rack_id
    cdef public long long replica_epoch
    cdef public int replica_id
    cdef public int session_epoch
    cdef public int session_id
    cdef public list topics


@cython.locals(flexible=cython.bint)
cpdef write_topic_key(bytearray out, int version, topic)


cpdef long long records_length(object records) except -1
