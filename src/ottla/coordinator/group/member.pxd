# C types for `member.py`; see there.


cdef class Member:
    cdef public object assignment
    cdef public object awaiting_join
    cdef public object awaiting_sync
    cdef public object client_host
    cdef public object client_id
    cdef public object instance_id
    cdef public object is_new
    cdef public object member_id
    cdef public object protocol_type
    cdef public object protocols
    cdef public object rebalance_timeout_ms
    cdef public object record
    cdef public object session_timeout_ms
