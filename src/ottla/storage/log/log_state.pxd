# C types for `log_state.py`; see there.


cdef class LogState:
    cdef public object cleaned
    cdef public long long durable
    cdef public long long high_watermark
    cdef public long long log_end
    cdef public long long log_start
    cdef public long long now_ms
    cdef public object on_start_moved
    cdef public long long recovery_point
    cdef public long long truncations

    cpdef bint holds_nothing(self, long long offset, long long high_watermark, long long log_start) noexcept
