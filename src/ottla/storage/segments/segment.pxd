# C types for `segment.py`; see there.
cimport cython

from ottla.storage.segments.batch_scan cimport FoundBatch, batch_at
from ottla.storage.segments.offset_index cimport OffsetIndex
from ottla.storage.segments.segment_files cimport LogSlice, SegmentFile
from ottla.storage.segments.segment_indexes cimport SegmentIndexes
from ottla.storage.segments.time_index cimport TimeIndex

cdef long long _STEP


cdef class RollLimits:
    cdef public long long offset_entries_max
    cdef public long long segment_bytes
    cdef public long long segment_ms
    cdef public long long time_entries_max


cdef class Segment:
    cdef public object _cache
    cdef public object _fs
    cdef public long long _fsynced_index_changes
    cdef public SegmentFile _handle
    cdef public long long _hint_offset
    cdef public long long _hint_position
    cdef public long long _hint_size
    cdef public SegmentIndexes _indexes
    cdef public object _max_timestamp
    cdef public long long _max_timestamp_offset
    cdef public long long base_offset
    cdef public long long bytes_since_index
    cdef public long long created_ms
    cdef public str directory
    cdef public object first_timestamp
    cdef public long long index_changes
    cdef public long long index_interval_bytes
    cdef public long long jitter_ms
    cdef public bint recently_used
    cdef public long long size

    @cython.locals(position=cython.longlong, end=cython.longlong, start=cython.longlong)
    cpdef write(self, buffer)

    @cython.locals(position=cython.longlong)
    cpdef note_batch(self, long long base_offset, long long last_offset, long long size, long long max_timestamp)

    @cython.locals(waited=cython.longlong, index=OffsetIndex, times=TimeIndex)
    cpdef bint should_roll(
        self, long long size, long long last_offset, long long max_timestamp, long long now_ms, RollLimits limits
    ) except -1

    cpdef SegmentFile open(self)

    @cython.locals(
        index=OffsetIndex, position=cython.longlong, following=cython.longlong, last_offset=cython.longlong,
        guess=FoundBatch, batch=FoundBatch, found=FoundBatch,
    )
    cpdef FoundBatch find(self, long long offset, bint nowait=*)

    @cython.locals(
        position=cython.longlong, size=cython.longlong, length=cython.longlong, first_offset=cython.longlong,
        batch=FoundBatch, handle=SegmentFile,
    )
    cpdef LogSlice read(self, long long offset, long long max_bytes, long long end, bint min_one_batch, bint nowait=*)

    @cython.locals(boundary=cython.longlong, length=cython.longlong, index=OffsetIndex)
    cdef long long _whole_batches(
        self, long long position, long long first_size, long long max_bytes, bint min_one, bint nowait
    ) except -1
