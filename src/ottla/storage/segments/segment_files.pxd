# C types for `segment_files.py`; see there.


cdef class SegmentFile:
    cdef public object file


cdef class LogSlice:
    cdef public SegmentFile _handle
    cdef public object file
    cdef public long long first_offset
    cdef public long long length
    cdef public long long position

    cpdef read_nowait(self)
