# C types for `fetching.py`; see there.
cimport cython

from ottla.protocol.fetch cimport FetchRequest, FetchTopic
from ottla.protocol.fetch_plain cimport encode_plain
from ottla.replication.fetch_session cimport CachedPartition, FetchSession, FetchSessionCache
from ottla.replication.partition cimport Partition
from ottla.server.connections.outbox cimport EncodedResponse
from ottla.server.fetch.partition_read cimport (
    Follower,
    Found,
    Read,
    field_of,
    has_nothing_new,
    is_news,
    is_plain,
    keeps_up,
    partition_of,
    read as read_partition,
    read_as_follower,
    take_cached,
)


cdef class Fetch:
    cdef public bint _busy
    cdef public int _cold_reads
    cdef public object _context
    cdef public object _deferred
    cdef public object _delayed
    cdef public list _entries
    cdef public bint _expired
    cdef public Follower _follower
    cdef public long long _max_bytes
    cdef public long long _min_bytes
    cdef public bint _new_session
    cdef public object _node
    cdef public object _permissions
    cdef public object _rack
    cdef public long long _reader
    cdef public long long _reader_epoch
    cdef public long long _reader_live_epoch
    cdef public object _replicas
    cdef public FetchRequest _request
    cdef public bint _scheduled
    cdef public FetchSession _session
    cdef public object _timer

    @cython.locals(
        rows=cython.Py_ssize_t, request=FetchRequest, topic=FetchTopic, session=FetchSession,
        sessions=FetchSessionCache, generation=cython.longlong,
    )
    cpdef bint is_long(self) except -1

    @cython.locals(request=FetchRequest)
    cpdef begin(self)

    @cython.locals(entries=list, topic=FetchTopic)
    cdef _take_requested(self)

    @cython.locals(found=Found)
    cpdef _attempt(self)

    cpdef bint _is_enough(self, Found found) except -1

    @cython.locals(
        isolation=cython.int, generation=cython.longlong, in_session=cython.bint, nowait=cython.bint,
        size=cython.longlong, remaining=cython.longlong, length=cython.longlong, reads=list, cached=CachedPartition,
        read=Read, follower=Follower, leader_only=cython.bint,
    )
    cpdef _read(self, list entries, Found found)

    cpdef _prefer(self, partition, long long offset, Read read)

    @cython.locals(pairs=object)
    cpdef list _partitions(self, Found found)

    @cython.locals(request=FetchRequest, sessions=FetchSessionCache, by_id=cython.bint)
    cdef FetchSession _resumed(self)

    @cython.locals(session=FetchSession, request=FetchRequest, topic=FetchTopic)
    cdef _resume(self)

    cdef bint _take_session(self, FetchSession session) except -1

    @cython.locals(session=FetchSession, cached=CachedPartition, rows=list, read=Read, number=cython.Py_ssize_t)
    cdef list _rows(self, list reads)

    @cython.locals(cold=list, rows=list)
    cpdef _finish(self, list reads)

    @cython.locals(session=FetchSession)
    cpdef _choose_entries(self)
