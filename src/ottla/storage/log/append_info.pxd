# C types for `append_info.py`; see there.


cdef class AppendInfo:
    cdef public long long batch_count
    cdef public long long first_offset
    cdef public bint is_duplicate
    cdef public long long last_offset
    cdef public long long leader_epoch
    cdef public long long log_append_time_ms
    cdef public long long log_start_offset
    cdef public long long max_timestamp_ms
    cdef public bint needs_flush
    cdef public long long size_bytes
