# C types for `group_metadata.py`; see there.


cdef class MemberRows:
    cdef public list _rows


cpdef bytes member_head(
    member_id, instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms, subscription
)
cpdef bytes member_row(head, assignment)
