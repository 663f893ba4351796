# C types for `log_health.py`; see there.


cdef class LogHealth:
    cdef public object _topic_partition
    cdef public object failure
    cdef public bint is_busy
    cdef public bint is_closed
    cdef public bint is_open
    cdef public object on_offline
    cdef public object on_failure
    cdef public object on_suspicion
    cdef public object on_full_disk
