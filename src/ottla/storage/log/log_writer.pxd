# C types for `log_writer.py`; see there.
cimport cython

from ottla.storage.log.log_health cimport LogHealth
from ottla.storage.log.log_state cimport LogState
from ottla.storage.segments.segment cimport RollLimits, Segment
from ottla.storage.segments.segment_list cimport SegmentList
from ottla.storage.log.stamp cimport Stamped


cdef class LogWriter:
    cdef public object _epochs
    cdef public object _flusher
    cdef public LogHealth _health
    cdef public object _producer_state
    cdef public SegmentList _segments
    cdef public LogState _state
    cdef public RollLimits limits
    cdef public object on_unflushed

    @cython.locals(size=cython.longlong, last_offset=cython.longlong, segment=Segment)
    cpdef append_stamped(self, buffer, Stamped stamped, list headers, long long leader_epoch, long long now_ms)

    cdef Segment _segment_for(
        self, long long size, long long base_offset, long long last_offset, long long max_timestamp, long long now_ms
    )

    @cython.locals(position=cython.longlong)
    cdef _write(self, Segment segment, buffer)

    cdef _written(self, long long size, long long log_end)
