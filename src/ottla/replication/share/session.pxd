# C types for `session.py`; see there.
cimport cython


cdef class ShareSession:
    cdef public dict _partitions
    cdef public object connection
    cdef public long long epoch
    cdef public dict found
    cdef public long long found_in
    cdef public object key

    cpdef change(self, added, forgotten)
    cpdef bint must_name(self, partition, bint has_records, bint has_error) except -1


cdef class ShareSessions:
    cdef public long long _count_max
    cdef public dict _of_connections
    cdef public object _on_end
    cdef public dict _sessions

    @cython.locals(session=ShareSession)
    cpdef fetch(self, key, long long epoch, partitions, forgotten, connection, bint acknowledges)
    cpdef ShareSession _find(self, key)


cpdef long long next_epoch(long long epoch)


cdef _go_on(ShareSession session, long long epoch)
