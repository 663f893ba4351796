# C types for `log.py`; see there.
cimport cython

from ottla.storage.log.append_info cimport AppendInfo
from ottla.storage.log.log_health cimport LogHealth
from ottla.storage.log.log_state cimport LogState
from ottla.storage.log.log_writer cimport LogWriter
from ottla.storage.segments.segment_files cimport LogSlice
from ottla.storage.segments.segment_list cimport SegmentList
from ottla.storage.log.stamp cimport Stamped, StampRules


cdef class Log:
    cdef public long long _flush_messages
    cdef public LogHealth _health
    cdef public object _note_unflushed
    cdef public object _parts
    cdef public object _policy
    cdef public object _random
    cdef public StampRules _rules
    cdef public SegmentList _segments
    cdef public LogState _state
    cdef public LogWriter _writer
    cdef public object config
    cdef public object epochs
    cdef public object flusher
    cdef public object producer_state
    cdef public object recovery
    cdef public object topic_id
    cdef public object topic_partition
    cdef public object truncator

    cdef _append_stamped(
        self, records, Stamped stamped, long long leader_epoch, long long now_ms, origin, long long guard,
        long long transaction_version
    )

    @cython.locals(end=cython.longlong, state=LogState, needs_flush=cython.bint, info=AppendInfo)
    cdef AppendInfo _appended(
        self, long long first, long long append_time, long long max_timestamp, long long epoch, long long size,
        long long batches
    )

    @cython.locals(state=LogState, end=cython.longlong)
    cpdef LogSlice read(
        self, long long offset, long long max_bytes, long long up_to, bint min_one_batch=*, bint nowait=*
    )

    cpdef bint holds_nothing(self, long long offset, long long high_watermark, long long log_start) except -1
