# C types for `fetch_session.py`; see there.
cimport cython



cdef class CachedPartition:
    cdef public object found
    cdef public long long generation
    cdef public long long high_watermark
    cdef public object key
    cdef public long long log_start_offset
    cdef public long long looks
    cdef public long long order
    cdef public object replica
    cdef public object request
    cdef public FetchSession session
    cdef public object watched

    @cython.locals(session=FetchSession)
    cpdef bint watch(self, partition, replica=*) except -1

    @cython.locals(session=FetchSession)
    cpdef look_again(self)

    cpdef bint is_news(self, long long error, long long high_watermark, long long log_start_offset, bint has_more)


cdef class FetchSession:
    cdef public dict changed
    cdef public long long changes
    cdef public long long created_ms
    cdef public long long epoch
    cdef public long long fetched_ms
    cdef public long long generation
    cdef public long long id
    cdef public bint is_kept
    cdef public long long last_order
    cdef public long long last_used_ms
    cdef public long long looks
    cdef public dict partitions
    cdef public bint privileged
    cdef public long long reader
    cdef public long long reader_epoch
    cdef public long long reader_live_epoch
    cdef public object topics
    cdef public bint uses_topic_ids
    cdef public dict waiting

    @cython.locals(cached=CachedPartition)
    cpdef update(self, requested, forgotten)

    cpdef bint is_read_by(self, long long reader, long long epoch, long long live_epoch) except -1

    cpdef set_reader(self, long long reader, long long epoch, long long live_epoch)

    cpdef move_to_end(self, CachedPartition cached)

    @cython.locals(changed=list)
    cpdef list to_read(self)


cdef class FetchSessionCache:
    cdef public list _dropped
    cdef public object _random
    cdef public dict _sessions
    cdef public long long _slots

    cpdef FetchSession get(self, long long session_id)

    @cython.locals(session=FetchSession)
    cpdef FetchSession resume(self, long long session_id, long long epoch, long long now_ms, bint uses_topic_ids)
