# C types for `member.py`; see there.

from ottla.coordinator.timers cimport Timer
from ottla.protocol.internal.group_metadata cimport member_head, member_row


cdef class Member:
    cdef public object _assigned
    cdef public object _head
    cdef public object _row
    cdef public object _subscription
    cdef public object assignment
    cdef public object awaiting_join
    cdef public object awaiting_sync
    cdef public object client_host
    cdef public object client_id
    cdef public object instance_id
    cdef public object is_new
    cdef public object member_id
    cdef public object protocol_type
    cdef public dict protocols
    cdef public long long rebalance_timeout_ms
    cdef public Timer session
    cdef public long long session_timeout_ms

    cpdef row(self, protocol, assignment)
    cpdef change(self, long long rebalance_timeout_ms, long long session_timeout_ms, dict protocols)
    cpdef rename(self, member_id)
